// SPDX-License-Identifier: Apache-2.0
// What is simulated: the counter and one camera with a small frame memory. Its clock has 100 ns, so that the shortest frame
// period is 1,000 cycles. Behind a DMA engine it is another one (rtltest).

module tcam_sim #(
    parameter integer CLOCK_PS = 100000,
    parameter integer MAX_WIDTH = 128,
    parameter integer MAX_HEIGHT = 32,
    parameter integer BEATS_LOG2 = 9
) (
    input  wire         clk,
    input  wire         resetn,
    output wire [ 63:0] now,
    input  wire         awvalid,
    output wire         awready,
    input  wire [ 11:0] awaddr,
    input  wire         wvalid,
    output wire         wready,
    input  wire [ 31:0] wdata,
    output wire         bvalid,
    input  wire         bready,
    output wire [  1:0] bresp,
    input  wire         arvalid,
    output wire         arready,
    input  wire [ 11:0] araddr,
    output wire         rvalid,
    input  wire         rready,
    output wire [ 31:0] rdata,
    output wire [  1:0] rresp,
    output wire         tvalid,
    input  wire         tready,
    output wire [127:0] tdata,
    output wire [ 15:0] tkeep,
    output wire         tlast,
    input  wire         c2h_run,
    input  wire         c2h_busy,
    output wire         user_interrupt,
    input  wire         use_pattern,
    input  wire         trigger_in,
    output wire         expose,
    input  wire         pixel_clk,
    input  wire         frame_valid,
    input  wire         line_valid,
    input  wire [ 15:0] pixel
);
    wire step;
    wire [63:0] step_by;
    wire [31:0] rate;
    tcam_clock #(.CLOCK_PS(CLOCK_PS)) counter (.clk, .resetn, .step, .step_by, .rate, .now);
    tcam_camera #(
        .MAX_WIDTH(MAX_WIDTH), .MAX_HEIGHT(MAX_HEIGHT), .BEATS_LOG2(BEATS_LOG2), .RESET_PERIOD(200000), .RESET_EXPOSURE(50000)
    ) camera (
        .clk, .resetn, .now, .time_step(step), .time_step_by(step_by), .time_rate(rate), .step, .step_by,
        .s_axil_awvalid(awvalid), .s_axil_awready(awready), .s_axil_awaddr(awaddr),
        .s_axil_wvalid(wvalid), .s_axil_wready(wready), .s_axil_wdata(wdata),
        .s_axil_bvalid(bvalid), .s_axil_bready(bready), .s_axil_bresp(bresp),
        .s_axil_arvalid(arvalid), .s_axil_arready(arready), .s_axil_araddr(araddr),
        .s_axil_rvalid(rvalid), .s_axil_rready(rready), .s_axil_rdata(rdata), .s_axil_rresp(rresp),
        .m_axis_tvalid(tvalid), .m_axis_tready(tready), .m_axis_tdata(tdata), .m_axis_tkeep(tkeep), .m_axis_tlast(tlast),
        .c2h_run, .c2h_busy, .user_interrupt,
        .use_pattern, .trigger_in, .expose, .pixel_clk, .pixel_resetn(resetn), .frame_valid, .line_valid, .pixel
    );
endmodule
