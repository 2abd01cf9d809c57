// SPDX-License-Identifier: Apache-2.0
// The timestamp counter: nanoseconds since the release of reset. All cameras share it.

module tcam_clock #(
    parameter integer CLOCK_PS = 4000  // the clock's period
) (
    input  wire        clk,
    input  wire        resetn,
    output reg  [63:0] now
);
    localparam integer WHOLE = CLOCK_PS / 1000;
    localparam integer REST = CLOCK_PS % 1000;  // ps

    reg  [ 9:0] rest;
    wire [10:0] sum = {1'b0, rest} + REST[10:0];
    wire        carry = sum >= 11'd1000;
    wire [ 9:0] less = sum[9:0] - 10'd1000;

    always @(posedge clk) begin
        if (!resetn) begin
            now  <= 64'd0;
            rest <= 10'd0;
        end else begin
            now  <= now + {32'd0, WHOLE[31:0]} + {63'd0, carry};
            rest <= carry ? less : sum[9:0];
        end
    end
endmodule
