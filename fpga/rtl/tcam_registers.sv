// SPDX-License-Identifier: Apache-2.0
// The camera block's registers (docs/fpga-interface.md, "Camera registers"). A design without gain: GAIN reads 256.

module tcam_registers #(
    parameter integer MAX_WIDTH = 1920,
    parameter integer MAX_HEIGHT = 1080,
    parameter integer BUFFERS = 2,
    parameter integer MIN_PERIOD = 100000,
    parameter integer COUNT = 1,
    parameter integer INDEX = 0,
    parameter integer CHANNEL = 0,
    parameter [31:0] RESET_FORMAT = 32'h30314752,
    parameter [31:0] RESET_PERIOD = 33333333,
    parameter [31:0] RESET_EXPOSURE = 10000000
) (
    input  wire         clk,
    input  wire         resetn,
    input  wire         write,
    input  wire [ 11:0] write_address,
    input  wire [ 31:0] write_data,
    input  wire         read,
    input  wire [ 11:0] read_address,
    output reg  [ 31:0] read_data,

    input  wire [ 15:0] least_width,
    output wire         start,         // a cycle
    output wire         stop,          // a cycle
    output reg          running,
    output wire         triggered,
    output wire         start_triggered,
    output wire         trigger,       // a cycle
    output wire         force_end,     // a cycle
    output reg  [ 15:0] width,
    output reg  [ 15:0] height,
    output reg  [ 31:0] format,
    output wire [  4:0] bits,
    output wire [ 31:0] stride,
    output reg  [ 31:0] frame_bytes,
    output reg  [ 31:0] period,
    output reg  [ 31:0] exposure,
    output wire         user_interrupt,
    output reg          time_step,     // a cycle: camera 0 sets the timestamp counter (tcam_clock)
    output reg  [ 63:0] time_step_by,
    output reg  [ 31:0] time_rate,

    input  wire [ 63:0] now,
    input  wire         exposing,
    input  wire         packet_open,
    input  wire         host_run,
    input  wire [  4:0] happened,      // events, a cycle
    input  wire [ 63:0] sequence_number,
    input  wire [159:0] counters,      // delivered, dropped, padded, missed, lost; the first is the lowest
    input  wire [ 63:0] open_sequence,
    input  wire [ 63:0] open_start
);
    localparam [11:0] MAGIC = 12'h000, VERSION = 12'h004, CAPABILITIES = 12'h008, MAX_GEOMETRY = 12'h00c, BUFFERS_AT = 12'h010,
        TRAILER_BYTES = 12'h014, ALIGN = 12'h018, MIN_PERIOD_AT = 12'h01c, COUNT_AT = 12'h020, INDEX_AT = 12'h024, CHANNEL_AT = 12'h028,
        CONTROL = 12'h040, COMMAND = 12'h044, STATUS = 12'h048, EVENTS = 12'h04c, EVENT_ENABLE = 12'h050,
        WIDTH = 12'h060, HEIGHT = 12'h064, FORMAT = 12'h068, BITS = 12'h06c, STRIDE = 12'h070, FRAME_BYTES = 12'h074,
        PERIOD = 12'h080, EXPOSURE = 12'h084, GAIN = 12'h088,
        TIME_LOW = 12'h0a0, TIME_HIGH = 12'h0a4, SEQUENCE_LOW = 12'h0a8, SEQUENCE_HIGH = 12'h0ac,
        DELIVERED = 12'h0b0, DROPPED = 12'h0b4, PADDED = 12'h0b8, MISSED = 12'h0bc, LOST = 12'h0c0,
        OPEN_LOW = 12'h0c8, OPEN_HIGH = 12'h0cc, OPEN_START_LOW = 12'h0d0, OPEN_START_HIGH = 12'h0d4,
        TIME_STEP_LOW = 12'h0e0, TIME_STEP_HIGH = 12'h0e4, TIME_RATE = 12'h0e8;
    localparam [31:0] CAPS = INDEX == 0 ? 32'hf7 : 32'h77;  // all but gain; the counter is camera 0's to set
    localparam [31:0] MAX_RATE = 32'd1000000;

    reg  [  1:0] control;
    reg  [  4:0] events, enabled;
    reg  [ 31:0] time_high, sequence_high;
    reg  [ 95:0] opened;

    tcam_format decode (.format(format), .bits(bits));
    wire         wide = bits > 5'd8;
    assign stride = bits == 5'd0 ? 32'd0 : wide ? {15'd0, width, 1'b0} : {16'd0, width};
    wire bad_geometry = width < least_width || {16'd0, width} > MAX_WIDTH || height == 16'd0 || {16'd0, height} > MAX_HEIGHT ||
        bits == 5'd0 || frame_bytes[5:0] != 6'd0;
    wire bad_times = period < MIN_PERIOD || exposure > period;
    wire bad = bad_geometry || (!control[1] && bad_times);
    wire bad_next = bad_geometry || (!write_data[1] && bad_times);  // with the mode that is written with run

    wire control_write = write && write_address == CONTROL && !(running && write_data[0]);
    wire command_write = write && write_address == COMMAND;
    assign start = control_write && write_data[0] && !control[0] && !bad_next;
    assign stop = control_write && !write_data[0];
    assign triggered = control[1];
    assign start_triggered = write_data[1];
    assign trigger = command_write && write_data[0];
    assign force_end = command_write && write_data[1];
    assign user_interrupt = |(events & enabled);

    wire [31:0] rate_size = write_data[31] ? 32'd0 - write_data : write_data;
    wire [31:0] rate = rate_size <= MAX_RATE ? write_data : write_data[31] ? 32'd0 - MAX_RATE : MAX_RATE;

    always @(posedge clk) begin
        frame_bytes <= stride * {16'd0, height};
        if (control_write) control <= write_data[1:0];
        if (start) running <= 1'b1;
        if (stop) running <= 1'b0;
        events <= (write && write_address == EVENTS ? events & ~write_data[4:0] : events) | happened;
        if (write)
            case (write_address)
                EVENT_ENABLE: enabled <= write_data[4:0];
                WIDTH: width <= write_data[15:0];
                HEIGHT: height <= write_data[15:0];
                FORMAT: format <= write_data;
                PERIOD: period <= write_data;
                EXPOSURE: exposure <= write_data;
                TIME_STEP_LOW: time_step_by[31:0] <= INDEX == 0 ? write_data : 32'd0;
                TIME_STEP_HIGH: time_step_by[63:32] <= INDEX == 0 ? write_data : 32'd0;
                TIME_RATE: time_rate <= INDEX == 0 ? rate : 32'd0;
                default: ;
            endcase
        time_step <= write && write_address == TIME_STEP_HIGH && INDEX == 0;
        if (read)
            case (read_address)
                TIME_LOW: time_high <= now[63:32];
                SEQUENCE_LOW: sequence_high <= sequence_number[63:32];
                OPEN_LOW: opened <= {open_start, open_sequence[63:32]};
                default: ;
            endcase
        if (!resetn) begin
            control <= 2'd0;
            running <= 1'b0;
            events <= 5'd0;
            enabled <= 5'd0;
            width <= MAX_WIDTH[15:0];
            height <= MAX_HEIGHT[15:0];
            format <= RESET_FORMAT;
            period <= RESET_PERIOD;
            exposure <= RESET_EXPOSURE;
            time_high <= 32'd0;
            sequence_high <= 32'd0;
            opened <= 96'd0;
            time_step <= 1'b0;
            time_step_by <= 64'd0;
            time_rate <= 32'd0;
        end
    end

    always @* begin
        case (read_address)
            MAGIC: read_data = 32'h4d414354;
            VERSION: read_data = 32'h00010003;
            CAPABILITIES: read_data = CAPS;
            MAX_GEOMETRY: read_data = {MAX_HEIGHT[15:0], MAX_WIDTH[15:0]};
            BUFFERS_AT: read_data = BUFFERS;
            TRAILER_BYTES: read_data = 32'd128;
            ALIGN: read_data = 32'd64; // FRAME_BYTES: a whole number of C2H descriptors (PG195, Length Granularity)
            MIN_PERIOD_AT: read_data = MIN_PERIOD;
            COUNT_AT: read_data = COUNT;
            INDEX_AT: read_data = INDEX;
            CHANNEL_AT: read_data = CHANNEL;
            CONTROL: read_data = {30'd0, control};
            STATUS: read_data = {27'd0, host_run, bad, packet_open, exposing, running};
            EVENTS: read_data = {27'd0, events};
            EVENT_ENABLE: read_data = {27'd0, enabled};
            WIDTH: read_data = {16'd0, width};
            HEIGHT: read_data = {16'd0, height};
            FORMAT: read_data = format;
            BITS: read_data = {27'd0, bits};
            STRIDE: read_data = stride;
            FRAME_BYTES: read_data = frame_bytes;
            PERIOD: read_data = period;
            EXPOSURE: read_data = exposure;
            GAIN: read_data = 32'd256;
            TIME_LOW: read_data = now[31:0];
            TIME_HIGH: read_data = time_high;
            SEQUENCE_LOW: read_data = sequence_number[31:0];
            SEQUENCE_HIGH: read_data = sequence_high;
            DELIVERED: read_data = counters[31:0];
            DROPPED: read_data = counters[63:32];
            PADDED: read_data = counters[95:64];
            MISSED: read_data = counters[127:96];
            LOST: read_data = counters[159:128];
            OPEN_LOW: read_data = open_sequence[31:0];
            OPEN_HIGH: read_data = opened[31:0];
            OPEN_START_LOW: read_data = opened[63:32];
            OPEN_START_HIGH: read_data = opened[95:64];
            TIME_STEP_LOW: read_data = time_step_by[31:0];
            TIME_STEP_HIGH: read_data = time_step_by[63:32];
            TIME_RATE: read_data = time_rate;
            default: read_data = 32'd0;
        endcase
    end
endmodule
