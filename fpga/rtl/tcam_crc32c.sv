// SPDX-License-Identifier: Apache-2.0
// CRC-32C of BITS bits in one step, without clock: each bit of the result is the parity of some bits of what comes in.

module tcam_crc32c #(
    parameter integer BITS = 128  // at least 32, a multiple of 8; byte 0 is data[7:0]
) (
    input  wire [    31:0] crc,   // the state: all ones before the first byte
    input  wire [BITS-1:0] data,
    output wire [    31:0] next   // the state; its complement is the checksum
);
    localparam [31:0] POLYNOMIAL = 32'h82f63b78;  // 0x1edc6f41, reflected

    // column is what bit number `at` of the data contributes to the state. It is constant.
    function [31:0] column(input integer at);
        integer i;
        begin
            column = 32'd1;
            for (i = at; i < BITS; i = i + 1) column = (column >> 1) ^ (column[0] ? POLYNOMIAL : 32'd0);
        end
    endfunction

    // row is which bits of the data are in bit `of` of the result.
    function [BITS-1:0] row(input [4:0] of);
        integer i;
        reg [31:0] c;
        begin
            row = {BITS{1'b0}};
            for (i = 0; i < BITS; i = i + 1) begin
                c = column(i);
                row[i] = c[of];
            end
        end
    endfunction

    wire [BITS-1:0] mixed = data ^ {{(BITS - 32) {1'b0}}, crc};
    genvar b;
    generate
        for (b = 0; b < 32; b = b + 1) begin : g_bit
            localparam [BITS-1:0] ROW = row(b[4:0]);
            assign next[b] = ^(mixed & ROW);
        end
    endgenerate
endmodule
