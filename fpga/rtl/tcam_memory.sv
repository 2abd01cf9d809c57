// SPDX-License-Identifier: Apache-2.0
// The frame memory: one port writes, one reads a cycle later and holds what it read.

module tcam_memory #(
    parameter integer AW = 10
) (
    input  wire          clk,
    input  wire          write,
    input  wire [AW-1:0] write_address,
    input  wire [ 127:0] write_data,
    input  wire          read,
    input  wire [AW-1:0] read_address,
    output reg  [ 127:0] read_data
);
    reg [127:0] words[0:(1<<AW)-1];
    always @(posedge clk) begin
        if (write) words[write_address] <= write_data;
        if (read) read_data <= words[read_address];
    end
endmodule
