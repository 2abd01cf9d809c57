// SPDX-License-Identifier: Apache-2.0
// What tcam_crc32c must be: CRC-32C, one bit after another, as docs/fpga-interface.md defines it.

module check_crc32c #(
    parameter integer BITS = 128
) (
    input wire [    31:0] crc,
    input wire [BITS-1:0] data,
    input wire [    31:0] next
);
    // serial is not reflected: bit 31 of its state is bit 0 of crc.
    function [31:0] serial(input [31:0] state, input [BITS-1:0] bits);
        integer i;
        begin
            for (i = 0; i < 32; i = i + 1) serial[31-i] = state[i];
            for (i = 0; i < BITS; i = i + 1)
                serial = {serial[30:0], 1'b0} ^ (serial[31] ^ bits[i] ? 32'h1edc6f41 : 32'd0);
        end
    endfunction

    wire [31:0] reference = serial(crc, data);
    genvar b;
    generate
        for (b = 0; b < 32; b = b + 1) begin : g_bit
            always @* assert (next[b] == reference[31-b]);
        end
    endgenerate
endmodule
