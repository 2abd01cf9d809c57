// SPDX-License-Identifier: Apache-2.0
// Samples into beats of 128 bits, in the order of V4L2's formats. What goes beyond a line's width or the frame's height is
// discarded. What is missing at the end of the frame is not written: the sender makes zeros of it.

module tcam_pack #(
    parameter integer AW = 16  // bits that count a frame's beats
) (
    input  wire         clk,
    input  wire         resetn,
    input  wire         arm,        // the next frame that begins is wanted
    input  wire         cancel,     // the frame is not wanted any more
    input  wire  [63:0] now,
    input  wire  [15:0] width,
    input  wire  [15:0] height,
    input  wire  [ 4:0] bits,       // significant ones of a sample

    input  wire         valid,      // as tcam_sensor
    input  wire  [ 1:0] kind,
    input  wire  [15:0] sample,

    output reg          busy,       // waits for a frame, or is in one
    output reg          write,
    output reg [AW-1:0] address,
    output reg  [127:0] data,
    output reg   [AW:0] beats,      // that can be read
    output reg   [31:0] delivered,  // bytes
    output reg          overflow,
    output reg   [63:0] first_line,
    output reg   [63:0] last_line,
    output reg          done        // a cycle: the frame has come
);
    localparam [1:0] SAMPLE = 2'd0, LINE_END = 2'd1, FRAME_END = 2'd2, FRAME_BEGIN = 2'd3;

    reg         in_frame, keep, any_line;
    reg  [15:0] x, y;
    reg [127:0] beat;
    reg  [ 3:0] at;  // byte of the beat
    reg  [AW:0] written;
    wire        wide = bits > 5'd8;
    wire [15:0] cut = sample & (16'hffff >> (5'd16 - bits));
    wire [127:0] placed = beat | ({112'd0, cut} << {at, 3'b000});
    wire [ 3:0] at_next = at + (wide ? 4'd2 : 4'd1);
    wire        fits = x < width && y < height;

    always @(posedge clk) begin
        write <= 1'b0;
        done <= 1'b0;
        beats <= written;  // a cycle after the write
        if (arm) begin
            busy <= 1'b1;
            in_frame <= 1'b0;
            keep <= 1'b1;
            written <= 0;
            beats <= 0;
        end else if (busy && valid && kind == FRAME_BEGIN) begin
            in_frame <= 1'b1;
            x <= 16'd0;
            y <= 16'd0;
            at <= 4'd0;
            beat <= 128'd0;
            delivered <= 32'd0;
            overflow <= 1'b0;
            any_line <= 1'b0;
            first_line <= 64'd0;
            last_line <= 64'd0;
        end else if (in_frame && valid) begin
            case (kind)
                SAMPLE:
                if (fits) begin
                    x <= x + 16'd1;
                    delivered <= delivered + (wide ? 32'd2 : 32'd1);
                    at <= at_next;
                    beat <= at_next == 4'd0 ? 128'd0 : placed;
                    if (at_next == 4'd0) begin
                        write <= keep;
                        written <= written + 1'b1;
                    end
                end else overflow <= 1'b1;
                LINE_END: begin
                    x <= 16'd0;
                    if (y < height) begin
                        y <= y + 16'd1;
                        any_line <= 1'b1;
                        if (!any_line) first_line <= now;
                        last_line <= now;
                    end
                end
                FRAME_END: begin
                    in_frame <= 1'b0;
                    busy <= 1'b0;
                    done <= keep;
                    if (at != 4'd0) begin
                        write <= keep;
                        written <= written + 1'b1;
                    end
                end
                default: ;  // cannot be: a frame has an end
            endcase
        end
        address <= written[AW-1:0];
        data <= in_frame && valid && kind == SAMPLE ? placed : beat;
        if (cancel) begin
            keep <= 1'b0;
            done <= 1'b0;
        end
        if (!resetn) begin
            busy <= 1'b0;
            in_frame <= 1'b0;
            keep <= 1'b0;
            done <= 1'b0;
            written <= 0;
        end
    end
endmodule
