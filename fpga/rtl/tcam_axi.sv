// SPDX-License-Identifier: Apache-2.0
// An AXI4-Lite slave for one block of registers: one access at a time each way, every one is answered OKAY.

module tcam_axi (
    input  wire        clk,
    input  wire        resetn,
    input  wire        awvalid,
    output wire        awready,
    input  wire [11:0] awaddr,
    input  wire        wvalid,
    output wire        wready,
    input  wire [31:0] wdata,
    output reg         bvalid,
    input  wire        bready,
    input  wire        arvalid,
    output wire        arready,
    input  wire [11:0] araddr,
    output reg         rvalid,
    input  wire        rready,
    output reg  [31:0] rdata,

    output wire        write,
    output wire [11:0] write_address,  // whole words
    output wire [31:0] write_data,
    output wire        read,
    output wire [11:0] read_address,
    input  wire [31:0] read_data       // in the same cycle
);
    assign write = awvalid && wvalid && !bvalid;
    assign awready = write;
    assign wready = write;
    assign write_address = {awaddr[11:2], 2'b00};
    assign write_data = wdata;
    assign read = arvalid && !rvalid;
    assign arready = read;
    assign read_address = {araddr[11:2], 2'b00};

    always @(posedge clk) begin
        if (write) bvalid <= 1'b1;
        else if (bready) bvalid <= 1'b0;
        if (read) begin
            rvalid <= 1'b1;
            rdata <= read_data;
        end else if (rready) rvalid <= 1'b0;
        if (!resetn) begin
            bvalid <= 1'b0;
            rvalid <= 1'b0;
        end
    end

    wire unused = &{1'b0, awaddr[1:0], araddr[1:0]};
endmodule
