// SPDX-License-Identifier: Apache-2.0
// What takes the place of tcam_crc32c in the proof of tcam_send, which shows that it is taken of the beats that were sent, once
// each and in order. What the real one computes is proven by itself.

module tcam_crc32c #(
    parameter integer BITS = 128
) (
    input  wire [    31:0] crc,
    input  wire [BITS-1:0] data,
    output wire [    31:0] next
);
    assign next = {crc[30:0], crc[31]} ^ data[31:0] ^ data[BITS-1-:32];
endmodule
