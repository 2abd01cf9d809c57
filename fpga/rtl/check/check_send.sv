// SPDX-License-Identifier: Apache-2.0
// What tcam_send must obey: AXI4-Stream's rule that a beat that is offered stays, and that a packet has each beat of its frame
// once, in order, with the frame memory's content, and then the trailer with the CRC of what was sent. Any one beat of a
// packet is watched: in a proof it can be each, in the simulation it is a random one.

module check_send #(
    parameter integer AW = 16
) (
    input wire         clk,
    input wire         resetn,
    input wire         flush,
    input wire         begin_packet,
    input wire         open,
    input wire         forced,
    input wire         finished,
    input wire [ AW:0] frame_beats,
    input wire [ AW:0] there,
    input wire         complete,
    input wire         read,
    input wire [AW-1:0] read_address,
    input wire [127:0] read_data,
    input wire         tvalid,
    input wire         tready,
    input wire [127:0] tdata,
    input wire [ 15:0] tkeep,
    input wire         tlast,
    // of its inside
    input wire         take,
    input wire [ AW:0] index,
    input wire         trailing,
    input wire         ended,
    input wire [  2:0] part,
    input wire         held,
    input wire         held_trailer,
    input wire         held_zero,
    input wire [  2:0] held_part,
    input wire [ 31:0] pixel_crc
);
    localparam integer CW = AW + 2;
    reg live = 1'b0;
    reg waits, last, read_was, complete_was;
    reg [127:0] data, data_was;
    reg [AW:0] beats, there_was;  // of the packet
    reg [CW-1:0] sent;            // its beats that were accepted
    reg [31:0] crc;               // of its pixels that were accepted
    wire [31:0] crc_next;
    tcam_crc32c #(.BITS(128)) check_crc (.crc, .data(tdata), .next(crc_next));

    // The beat that is watched: whether it was just read, what it was, and whether zeros take its place.
    reg [AW-1:0] pick, at;
    reg fresh, zero;
    reg [127:0] word;

    wire [CW-1:0] whole = {1'b0, beats} + 8;
    wire [CW-1:0] taken = ended ? whole : trailing ? {1'b0, beats} + part : {1'b0, index};
    wire [CW-1:0] held_at = sent + tvalid;
    wire end_beat = forced && tlast;  // what a command ends a packet with
    wire pixels = sent < beats && !end_beat;
    always @(posedge clk) begin
        if (!resetn) live <= 1'b1;
        waits <= resetn && tvalid && !tready && !flush;
        data <= tdata;
        last <= tlast;
        read_was <= read;
        data_was <= read_data;
        there_was <= there;
        complete_was <= complete && open;
        pick <= pick + 1'b1;
        fresh <= read && read_address == at;
        if (fresh) word <= read_data;
        if (take && !trailing && index == at) zero <= index >= there;
        if (tvalid && tready) begin
            sent <= sent + 1'b1;
            if (pixels) crc <= crc_next;
        end
        if (begin_packet) begin
            at <= pick;
            fresh <= 1'b0;
            beats <= frame_beats;
            there_was <= 0;
            complete_was <= 1'b0;
            sent <= 0;
            crc <= 32'hffffffff;
        end
    end

    // What the others must obey.
    always @(posedge clk)
        if (live && resetn) begin
            if (begin_packet) assume (!open && !flush && frame_beats != 0 && frame_beats <= (1 << AW));
            if (open) assume (frame_beats == beats && there <= beats && there >= there_was);
            if (open && complete_was) assume (complete && there == there_was);
            if (!read_was) assume (read_data == data_was);
        end

    always @(posedge clk)
        if (live && resetn) begin
            if (waits) assert (tvalid && tdata == data && tlast == last);
            if (tvalid) assert (tkeep == 16'hffff);
            if (finished) assert (forced ? sent + 1'b1 < whole : sent + 1'b1 == whole);
            if (take && !trailing) assert (index < there || complete);
            if (tvalid && pixels && sent == at) assert (tdata == (zero ? 128'd0 : word));
            if (tvalid && !end_beat && sent == beats + 4) assert (tdata[95:64] == ~crc);
            if (tvalid && end_beat) assert (tdata == 128'd0);

            // What makes the above inductive.
            if (tvalid || held) assert (open);
            if (open) assert (beats != 0 && beats <= (1 << AW) && sent < whole);
            if (forced) assert (open && !ended && (tvalid && tlast ? sent : sent + tvalid) + 1 < whole);
            if (forced && !(tvalid && tlast)) assert (sent + tvalid + held < whole);
            if (forced && tvalid && tlast) assert (!held);
            if (open) assert (trailing ? index == beats : index < beats);
            if (open && (ended || !trailing)) assert (part == 3'd0);
            if (open && ended) assert (trailing);
            if (open && !forced) begin
                assert (taken == sent + tvalid + held);
                if (tvalid) assert (tlast == (sent + 1'b1 == whole));
                assert (pixel_crc == (tvalid && sent < beats ? crc_next : crc));
            end
            if (open && held && !(forced && tlast)) begin
                assert (held_trailer == (held_at >= beats));
                if (held_trailer) assert (held_part == held_at - beats);
                if (!held_trailer && held_at == at) assert (zero == held_zero && read_data == (fresh ? read_data : word));
            end
        end
endmodule
