// SPDX-License-Identifier: Apache-2.0
// The packetizer: a frame from the frame memory, zeros for what is missing, and the trailer. It reads as soon as beats are
// there. Back pressure goes through both of its stages without a beat lost.

module tcam_send #(
    parameter integer AW = 16
) (
    input  wire          clk,
    input  wire          resetn,
    input  wire          flush,         // the channel has stopped: forget the packet
    input  wire          begin_packet,
    input  wire          force_end,
    output reg           open,
    output reg           forced,
    output wire          finished,      // a cycle: the packet's last beat is accepted

    input  wire [  AW:0] frame_beats,
    input  wire [  AW:0] there,         // beats in the frame memory
    input  wire          complete,      // no more will come, and the trailer's fields stand
    input  wire [1023:0] fields,        // the trailer without its checksums
    output wire          read,
    output wire [AW-1:0] read_address,
    input  wire [ 127:0] read_data,     // the next cycle, until the next read

    output reg           tvalid,
    input  wire          tready,
    output reg  [ 127:0] tdata,
    output wire [  15:0] tkeep,
    output reg           tlast
);
    reg  [AW:0] index;
    reg         trailing, ended;
    reg  [ 2:0] part;
    reg         held, held_trailer, held_zero;  // the stage behind the memory
    reg  [ 2:0] held_part;
    reg  [31:0] pixel_crc, trailer_crc;

    wire        go_out = !tvalid || tready;
    wire        go_held = !held || go_out;
    wire        ready = trailing ? complete : index < there || complete;
    wire        take = open && !forced && !ended && ready && go_held;
    assign read = take && !trailing;
    assign read_address = index[AW-1:0];
    assign finished = tvalid && tready && tlast;
    assign tkeep = 16'hffff;

    wire [127:0] pixels = held_zero ? 128'd0 : read_data;
    wire [127:0] field = fields[{held_part, 7'd0}+:128];
    wire [127:0] part_data = held_part == 3'd4 ? {field[127:96], ~pixel_crc, field[63:0]} : field;
    wire [ 31:0] trailer_state = held_part == 3'd0 ? 32'hffffffff : trailer_crc;
    wire [ 31:0] pixel_next, trailer_next, trailer_end;
    tcam_crc32c #(.BITS(128)) crc_pixels (.crc(pixel_crc), .data(pixels), .next(pixel_next));
    tcam_crc32c #(.BITS(128)) crc_trailer (.crc(trailer_state), .data(part_data), .next(trailer_next));
    tcam_crc32c #(.BITS(96)) crc_end (.crc(trailer_crc), .data(part_data[95:0]), .next(trailer_end));

    always @(posedge clk) begin
        if (begin_packet) begin
            open <= 1'b1;
            forced <= 1'b0;
            ended <= 1'b0;
            index <= 0;
            trailing <= 1'b0;
            part <= 3'd0;
            pixel_crc <= 32'hffffffff;
        end
        if (take) begin
            held_trailer <= trailing;
            held_part <= part;
            held_zero <= index >= there;
            if (trailing) begin
                part <= part + 3'd1;
                ended <= part == 3'd7;
            end else begin
                index <= index + 1'b1;
                trailing <= index + 1'b1 == frame_beats;
            end
        end
        held <= take || (held && !go_out);
        if (go_out) begin
            tvalid <= held;
            tlast <= held && held_trailer && held_part == 3'd7;
            if (held) begin
                tdata <= !held_trailer ? pixels : held_part == 3'd7 ? {~trailer_end, part_data[95:0]} : part_data;
                if (held_trailer) trailer_crc <= trailer_next;
                else pixel_crc <= pixel_next;
            end
        end
        if (forced) begin
            held <= 1'b0;
            if (go_out) begin
                tvalid <= open && !(tvalid && tlast);
                tlast <= 1'b1;
                tdata <= 128'd0;
            end
        end
        // A packet of which only the last beat is missing ends by itself: one more beat would have made it look complete.
        if (force_end && open && !ended && !(trailing && part == 3'd7)) forced <= 1'b1;
        if (finished) begin
            open <= 1'b0;
            forced <= 1'b0;
            tvalid <= 1'b0;
            held <= 1'b0;
        end
        if (!resetn || flush) begin
            open <= 1'b0;
            forced <= 1'b0;
            ended <= 1'b0;
            held <= 1'b0;
            tvalid <= 1'b0;
        end
    end
endmodule
