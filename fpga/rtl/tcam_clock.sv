// SPDX-License-Identifier: Apache-2.0
// The timestamp counter: nanoseconds since the release of reset, as far as nobody sets it. All cameras share it. The registers
// of camera 0 set it.

module tcam_clock #(
    parameter integer CLOCK_PS = 4000  // the clock's period, up to 1,000,000
) (
    input  wire        clk,
    input  wire        resetn,
    input  wire        step,     // a cycle: step_by is added
    input  wire [63:0] step_by,  // ns, signed
    input  wire [31:0] rate,     // parts in 10**9 by which it runs faster, signed
    output reg  [63:0] now
);
    localparam integer WHOLE = CLOCK_PS / 1000;
    localparam integer REST = CLOCK_PS % 1000;  // ps

    reg  [ 9:0] rest;
    wire [10:0] sum = {1'b0, rest} + REST[10:0];
    wire        carry = sum >= 11'd1000;
    wire [ 9:0] less = sum[9:0] - 10'd1000;

    // What the rate adds in a cycle, and what of it is not a nanosecond yet: 10**-9 ps, signed.
    localparam [47:0] NANOSECOND = 48'd1000000000000, LESS = 48'd0 - NANOSECOND;
    reg  [47:0] gain, part;
    wire [47:0] gained = part + gain;
    wire        up = !gained[47] && gained >= NANOSECOND;
    wire        down = gained[47] && gained <= LESS;

    always @(posedge clk) begin
        if (!resetn) begin
            now  <= 64'd0;
            rest <= 10'd0;
            gain <= 48'd0;
            part <= 48'd0;
        end else begin
            now  <= now + {32'd0, WHOLE[31:0]} + {63'd0, carry} + (up ? 64'd1 : down ? ~64'd0 : 64'd0) + (step ? step_by : 64'd0);
            rest <= carry ? less : sum[9:0];
            gain <= {{16{rate[31]}}, rate} * {16'd0, CLOCK_PS[31:0]};
            part <= up ? gained - NANOSECOND : down ? gained + NANOSECOND : gained;
        end
    end
endmodule
