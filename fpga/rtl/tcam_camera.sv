// SPDX-License-Identifier: Apache-2.0
// A camera of docs/fpga-interface.md: the block of registers, the test pattern or a sensor, the frame memory, and the
// packets for a C2H channel of XDMA. The trailer's fields of each buffer are here.

module tcam_camera #(
    parameter integer MAX_WIDTH = 1920,
    parameter integer MAX_HEIGHT = 1080,
    parameter integer BUFFERS_LOG2 = 1,   // the frame memory has 2 ** BUFFERS_LOG2 buffers
    parameter integer BEATS_LOG2 = 18,    // of 2 ** BEATS_LOG2 beats each: room for MAX_WIDTH * MAX_HEIGHT samples of 16 bits
    parameter integer MIN_PERIOD = 100000,
    parameter integer COUNT = 1,
    parameter integer INDEX = 0,
    parameter integer CHANNEL = 0,
    parameter integer SHIFT = 2,          // of the test pattern, samples a frame
    parameter [31:0] RESET_FORMAT = 32'h30314752,
    parameter [31:0] RESET_PERIOD = 33333333,
    parameter [31:0] RESET_EXPOSURE = 10000000
) (
    input  wire         clk,              // XDMA's axi_aclk
    input  wire         resetn,
    input  wire [ 63:0] now,              // tcam_clock
    output wire         time_step,        // of INDEX 0: to tcam_clock, and to all cameras' step and step_by
    output wire [ 63:0] time_step_by,
    output wire [ 31:0] time_rate,        // of INDEX 0: to tcam_clock
    input  wire         step,
    input  wire [ 63:0] step_by,

    input  wire         s_axil_awvalid,
    output wire         s_axil_awready,
    input  wire [ 11:0] s_axil_awaddr,
    input  wire         s_axil_wvalid,
    output wire         s_axil_wready,
    input  wire [ 31:0] s_axil_wdata,
    output wire         s_axil_bvalid,
    input  wire         s_axil_bready,
    output wire [  1:0] s_axil_bresp,
    input  wire         s_axil_arvalid,
    output wire         s_axil_arready,
    input  wire [ 11:0] s_axil_araddr,
    output wire         s_axil_rvalid,
    input  wire         s_axil_rready,
    output wire [ 31:0] s_axil_rdata,
    output wire [  1:0] s_axil_rresp,

    output wire         m_axis_tvalid,
    input  wire         m_axis_tready,
    output wire [127:0] m_axis_tdata,
    output wire [ 15:0] m_axis_tkeep,
    output wire         m_axis_tlast,
    input  wire         c2h_run,          // c2h_sts[6]
    input  wire         c2h_busy,         // c2h_sts[0]
    output wire         user_interrupt,      // usr_irq_req[INDEX]

    input  wire         use_pattern,      // constant: the test pattern instead of the sensor
    input  wire         trigger_in,       // any clock; its rising edge triggers
    output wire         expose,           // high while a frame is exposed; the sensor reads out when it falls
    input  wire         pixel_clk,        // slower than clk
    input  wire         pixel_resetn,
    input  wire         frame_valid,
    input  wire         line_valid,
    input  wire [ 15:0] pixel
);
    localparam integer BW = BUFFERS_LOG2;
    localparam integer AW = BEATS_LOG2;
    localparam integer BUFFERS = 1 << BW;

    // Registers.
    wire write, read, start, stop, running, triggered, start_triggered, command_trigger, force_end;
    wire [11:0] write_address, read_address;
    wire [31:0] write_data, read_data, format, stride, frame_bytes, period, exposure;
    wire [15:0] width, height;
    wire [4:0] bits;
    wire [63:0] sequence_number;
    wire [159:0] counters;
    wire [3:0] happened;
    wire exposed_now, open, forced;
    reg force_was;
    reg [63:0] open_sequence, open_start;
    assign s_axil_bresp = 2'd0;
    assign s_axil_rresp = 2'd0;
    tcam_axi axi (
        .clk, .resetn,
        .awvalid(s_axil_awvalid), .awready(s_axil_awready), .awaddr(s_axil_awaddr),
        .wvalid(s_axil_wvalid), .wready(s_axil_wready), .wdata(s_axil_wdata), .bvalid(s_axil_bvalid), .bready(s_axil_bready),
        .arvalid(s_axil_arvalid), .arready(s_axil_arready), .araddr(s_axil_araddr),
        .rvalid(s_axil_rvalid), .rready(s_axil_rready), .rdata(s_axil_rdata),
        .write, .write_address, .write_data, .read, .read_address, .read_data
    );
    tcam_registers #(
        .MAX_WIDTH(MAX_WIDTH), .MAX_HEIGHT(MAX_HEIGHT), .BUFFERS(BUFFERS), .MIN_PERIOD(MIN_PERIOD), .COUNT(COUNT), .INDEX(INDEX),
        .CHANNEL(CHANNEL), .RESET_FORMAT(RESET_FORMAT), .RESET_PERIOD(RESET_PERIOD), .RESET_EXPOSURE(RESET_EXPOSURE)
    ) registers (
        .clk, .resetn, .write, .write_address, .write_data, .read, .read_address, .read_data,
        .least_width(use_pattern ? 16'd64 : 16'd1),
        .start, .stop, .running, .triggered, .start_triggered, .trigger(command_trigger), .force_end,
        .width, .height, .format, .bits, .stride, .frame_bytes, .period, .exposure, .user_interrupt,
        .time_step, .time_step_by, .time_rate,
        .now, .exposing(exposed_now), .packet_open(open), .host_run(c2h_run), .happened({force_was, happened}),
        .sequence_number, .counters, .open_sequence, .open_start
    );

    // The trigger input, through two flip-flops.
    (* ASYNC_REG = "TRUE" *) reg [1:0] trigger_sync;
    reg trigger_was;
    always @(posedge clk) begin
        trigger_sync <= resetn ? {trigger_sync[0], trigger_in} : 2'b11;
        trigger_was <= trigger_sync[1] || !resetn;
        force_was <= force_end && open && resetn;
    end
    wire trigger = command_trigger || (trigger_sync[1] && !trigger_was);

    // The books of the frames.
    wire detached = !c2h_run && !c2h_busy;
    wire frame_taken, frame_kept, frame_read, cancel, filling, taken_triggered, begin_packet, finished, written, torn;
    wire [BW-1:0] fill, first;
    wire [63:0] taken_number, taken_start, taken_end;
    wire pack_busy, pack_done;
    wire [31:0] delivered;
    reg pack_done_1;
    wire source_busy = frame_read || pack_busy || pack_done || pack_done_1;
    reg [31:0] fill_bytes;
    assign written = pack_done_1;
    tcam_frames #(.BUFFERS(BUFFERS), .BW(BW)) frames (
        .clk, .resetn, .now, .step, .step_by, .start, .stop, .running, .triggered, .start_triggered, .trigger, .period, .exposure, .detached,
        .source_busy, .frame_taken, .frame_kept, .frame_read, .cancel, .filling, .fill,
        .taken_number, .taken_start, .taken_end, .taken_triggered,
        .written, .short_frame(delivered != fill_bytes), .torn_frame(torn),
        .begin_packet, .first, .open, .finished, .forced,
        .exposed_now, .expose, .sequence_number, .counters, .happened
    );

    // The source. The frame that it reads out has the geometry of when it was exposed.
    reg [15:0] fill_width, fill_height;
    reg [4:0] fill_bits;
    wire pattern_valid, sensor_valid;
    wire [1:0] pattern_kind, sensor_kind;
    wire [15:0] pattern_sample, sensor_sample;
    tcam_pattern #(.SHIFT(SHIFT)) pattern (
        .clk, .resetn, .restart(start), .next(frame_taken), .go(frame_read && frame_kept && use_pattern),
        .sequence_number(taken_number), .wrap(width), .width(fill_width), .height(fill_height), .bits(fill_bits),
        .valid(pattern_valid), .kind(pattern_kind), .sample(pattern_sample)
    );
    tcam_sensor sensor (
        .pixel_clk, .pixel_resetn, .frame_valid, .line_valid, .pixel,
        .clk, .resetn, .valid(sensor_valid), .kind(sensor_kind), .sample(sensor_sample)
    );
    wire memory_write, memory_read;
    wire [AW-1:0] memory_address, memory_read_address;
    wire [127:0] memory_data, frame_data;
    wire [AW:0] beats;
    wire [63:0] first_line, last_line;
    tcam_pack #(.AW(AW)) pack (
        .clk, .resetn, .arm(frame_read && (frame_kept || !use_pattern)), .cancel(cancel || (frame_read && !frame_kept)),
        .now, .width(fill_width), .height(fill_height), .bits(fill_bits),
        .valid(use_pattern ? pattern_valid : sensor_valid), .kind(use_pattern ? pattern_kind : sensor_kind),
        .sample(use_pattern ? pattern_sample : sensor_sample),
        .busy(pack_busy), .write(memory_write), .address(memory_address), .data(memory_data), .beats,
        .delivered, .overflow(torn), .first_line, .last_line, .done(pack_done)
    );

    // What the trailer says of each buffer's frame.
    reg [63:0] b_number[0:BUFFERS-1];
    reg [63:0] b_start[0:BUFFERS-1];
    reg [63:0] b_end[0:BUFFERS-1];
    reg [63:0] b_first_line[0:BUFFERS-1];
    reg [63:0] b_last_line[0:BUFFERS-1];
    reg [31:0] b_size[0:BUFFERS-1];
    reg [31:0] b_stride[0:BUFFERS-1];
    reg [31:0] b_format[0:BUFFERS-1];
    reg [4:0] b_bits[0:BUFFERS-1];
    reg [31:0] b_bytes[0:BUFFERS-1];
    reg [31:0] b_delivered[0:BUFFERS-1];
    reg b_torn[0:BUFFERS-1];
    reg b_triggered[0:BUFFERS-1];
    reg [AW:0] b_beats[0:BUFFERS-1];
    reg [BUFFERS-1:0] complete;
    always @(posedge clk) begin
        pack_done_1 <= pack_done && resetn;
        if (frame_kept) begin
            b_number[fill] <= taken_number;
            b_start[fill] <= taken_start;
            b_end[fill] <= taken_end;
            b_triggered[fill] <= taken_triggered;
            b_size[fill] <= {height, width};
            b_stride[fill] <= stride;
            b_format[fill] <= format;
            b_bits[fill] <= bits;
            b_bytes[fill] <= frame_bytes;
            b_beats[fill] <= 0;
            complete[fill] <= 1'b0;
        end else if (filling) begin
            b_beats[fill] <= beats;
            b_delivered[fill] <= delivered;
            b_torn[fill] <= torn;
            b_first_line[fill] <= first_line;
            b_last_line[fill] <= last_line;
            if (written) complete[fill] <= 1'b1;
        end
        if (begin_packet) begin
            open_sequence <= b_number[first];
            open_start <= b_start[first];
        end
        if (!resetn) begin
            open_sequence <= 64'd0;
            open_start <= 64'd0;
            complete <= 0;
        end
    end
    always @(posedge clk)
        if (frame_read) begin
            fill_width <= width;
            fill_height <= height;
            fill_bits <= bits;
            fill_bytes <= frame_bytes;
        end

    tcam_memory #(.AW(AW + BW)) memory (
        .clk, .write(memory_write), .write_address({fill, memory_address}), .write_data(memory_data),
        .read(memory_read), .read_address({first, memory_read_address}), .read_data(frame_data)
    );
    wire padded = b_delivered[first] != b_bytes[first];
    wire [1023:0] trailer = {
        256'd0, b_last_line[first], b_first_line[first],
        32'd0, 32'd0, 32'd0, b_delivered[first], 32'd0, b_bytes[first],
        29'd0, b_triggered[first], b_torn[first], padded, 27'd0, b_bits[first], b_format[first], b_stride[first],
        16'd0, b_size[first][31:16], 16'd0, b_size[first][15:0],
        b_end[first], b_start[first], b_number[first], 16'd128, 16'd1, 32'h54464354
    };
    tcam_send #(.AW(AW)) send (
        .clk, .resetn, .flush(detached), .begin_packet, .force_end, .open, .forced, .finished,
        .frame_beats(b_bytes[first][AW+4:4]), .there(b_beats[first]), .complete(complete[first]), .fields(trailer),
        .read(memory_read), .read_address(memory_read_address), .read_data(frame_data),
        .tvalid(m_axis_tvalid), .tready(m_axis_tready), .tdata(m_axis_tdata), .tkeep(m_axis_tkeep), .tlast(m_axis_tlast)
    );
endmodule
