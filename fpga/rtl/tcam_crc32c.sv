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

    // columns are what each bit of the data contributes to the state, 32 bits each. They are constant. One that came
    // behind the last would contribute `behind`.
    function [32*BITS-1:0] columns(input [31:0] behind);
        integer i;
        reg [31:0] c;
        begin
            c = behind;
            for (i = BITS - 1; i >= 0; i = i - 1) begin
                c = (c >> 1) ^ (c[0] ? POLYNOMIAL : 32'd0);
                columns[32*i+:32] = c;
            end
        end
    endfunction
    localparam [32*BITS-1:0] COLUMNS = columns(32'd1);

    // row is which bits of the data are in bit `of` of the result.
    function [BITS-1:0] row(input [4:0] of);
        integer i;
        for (i = 0; i < BITS; i = i + 1) row[i] = COLUMNS[32*i+{27'd0, of}];
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
