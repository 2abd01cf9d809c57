// SPDX-License-Identifier: Apache-2.0
// The test pattern: frame n is the texture x ^ y, rotated left by n * SHIFT samples, and the first 64 samples of its first
// line are the bits of n, lowest first. It is read out as a sensor would be, one sample a cycle.

module tcam_pattern #(
    parameter integer SHIFT = 2  // even, so that the Bayer order stays
) (
    input  wire        clk,
    input  wire        resetn,
    input  wire        restart,   // the next frame is number 0
    input  wire        next,      // a frame has been exposed: the next one is one number higher
    input  wire        go,        // read it out; not while busy
    input  wire [63:0] sequence_number,
    input  wire [15:0] wrap,      // the width now
    input  wire [15:0] width,     // of the frame that is read out, from the cycle after go on
    input  wire [15:0] height,
    input  wire [ 4:0] bits,
    output reg         valid,
    output reg  [ 1:0] kind,      // as tcam_sensor
    output reg  [15:0] sample
);
    localparam [1:0] SAMPLE = 2'd0, LINE_END = 2'd1, FRAME_END = 2'd2, FRAME_BEGIN = 2'd3;

    reg         busy, edge_of_line, edge_of_frame;
    reg  [15:0] offset;  // of the frame being exposed
    wire [16:0] moved = {1'b0, offset} + SHIFT[16:0];
    wire [15:0] wrapped = moved[15:0] - wrap;

    reg  [63:0] number;
    reg  [15:0] x, y, sx, first;
    wire [15:0] texture = {sx[7:0] ^ y[7:0], sx[7:0] + y[7:0] + {y[6:0], 1'b0}};
    wire [15:0] plain = texture >> (5'd16 - bits);
    wire [15:0] white = 16'hffff >> (5'd16 - bits);
    wire        stamped = y == 16'd0 && x < 16'd64;

    always @(posedge clk) begin
        valid <= 1'b0;
        kind <= SAMPLE;
        sample <= stamped ? (number[x[5:0]] ? white : 16'd0) : plain;
        if (restart) offset <= 16'd0;
        else if (next) offset <= moved >= {1'b0, wrap} ? wrapped : moved[15:0];
        if (go) begin
            busy <= 1'b1;
            number <= sequence_number;
            first <= offset;
            sx <= offset;
            x <= 16'd0;
            y <= 16'd0;
            valid <= 1'b1;
            kind <= FRAME_BEGIN;
        end else if (edge_of_frame) begin
            busy <= 1'b0;
            edge_of_frame <= 1'b0;
            valid <= 1'b1;
            kind <= FRAME_END;
        end else if (edge_of_line) begin
            edge_of_line <= 1'b0;
            valid <= 1'b1;
            kind <= LINE_END;
            edge_of_frame <= y == height;
        end else if (busy) begin
            valid <= 1'b1;
            sx <= sx + 16'd1 == width ? 16'd0 : sx + 16'd1;
            x <= x + 16'd1;
            if (x + 16'd1 == width) begin
                x <= 16'd0;
                sx <= first;
                y <= y + 16'd1;
                edge_of_line <= 1'b1;
            end
        end
        if (!resetn) begin
            busy <= 1'b0;
            edge_of_line <= 1'b0;
            edge_of_frame <= 1'b0;
            valid <= 1'b0;
        end
    end
endmodule
