// SPDX-License-Identifier: Apache-2.0
// What tcam_axi must obey: the handshakes of AXI4-Lite, each write passed on once, each read answered with what was read.

module check_axi (
    input wire        clk,
    input wire        resetn,
    input wire        awvalid,
    input wire        awready,
    input wire [11:0] awaddr,
    input wire        wvalid,
    input wire        wready,
    input wire [31:0] wdata,
    input wire        bvalid,
    input wire        bready,
    input wire        arvalid,
    input wire        arready,
    input wire [11:0] araddr,
    input wire        rvalid,
    input wire        rready,
    input wire [31:0] rdata,
    input wire        write,
    input wire [11:0] write_address,
    input wire [31:0] write_data,
    input wire        read,
    input wire [11:0] read_address,
    input wire [31:0] read_data
);
    reg live = 1'b0;  // there was a reset
    reg owed_b, owed_r, b_waits, r_waits;
    reg [31:0] answer, last;
    always @(posedge clk) begin
        if (!resetn) live <= 1'b1;
        b_waits <= resetn && bvalid && !bready;
        r_waits <= resetn && rvalid && !rready;
        last <= rdata;
        if (awvalid && awready) owed_b <= 1'b1;
        else if (bvalid && bready) owed_b <= 1'b0;
        if (arvalid && arready) begin
            owed_r <= 1'b1;
            answer <= read_data;
        end else if (rvalid && rready) owed_r <= 1'b0;
        if (!resetn) begin
            owed_b <= 1'b0;
            owed_r <= 1'b0;
        end
    end

    always @(posedge clk)
        if (live && resetn) begin
            if (b_waits) assert (bvalid);
            if (r_waits) assert (rvalid && rdata == last);
            assert (bvalid == owed_b);
            assert (rvalid == owed_r);
            if (rvalid) assert (rdata == answer);
            // Address and data of a write are taken together, when the answer to the one before is gone.
            assert ((awvalid && awready) == (wvalid && wready));
            assert ((awvalid && awready) == write);
            assert (write == (awvalid && wvalid && !owed_b));
            if (write) assert (write_address == {awaddr[11:2], 2'd0} && write_data == wdata);
            assert ((arvalid && arready) == read);
            assert (read == (arvalid && !owed_r));
            if (read) assert (read_address == {araddr[11:2], 2'd0});
        end
endmodule
