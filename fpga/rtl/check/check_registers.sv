// SPDX-License-Identifier: Apache-2.0
// What tcam_registers must obey: a register that can be written reads as it was written last, an event stays until it is
// cleared, and the upper halves are those of when the lower ones were read.

module check_registers (
    input wire         clk,
    input wire         resetn,
    input wire         write,
    input wire [ 11:0] write_address,
    input wire [ 31:0] write_data,
    input wire         read,
    input wire [ 11:0] read_address,
    input wire [ 31:0] read_data,
    input wire         start,
    input wire         stop,
    input wire         running,
    input wire         user_interrupt,
    input wire [ 15:0] width,
    input wire [ 15:0] height,
    input wire [ 31:0] format,
    input wire [ 31:0] period,
    input wire [ 31:0] exposure,
    input wire         time_step,
    input wire [ 63:0] time_step_by,
    input wire [ 31:0] time_rate,
    input wire [ 63:0] now,
    input wire [  4:0] happened,
    input wire [ 63:0] sequence_number,
    input wire [ 63:0] open_sequence,
    input wire [ 63:0] open_start,
    // of its inside
    input wire [  1:0] control,
    input wire [  4:0] events,
    input wire [  4:0] enabled,
    input wire [ 31:0] time_high,
    input wire [ 31:0] sequence_high,
    input wire [ 95:0] opened
);
    // What was written last, and is known since then.
    reg live = 1'b0;
    reg known_width, known_height, known_format, known_period, known_exposure;
    reg [15:0] w_width, w_height;
    reg [31:0] w_format, w_period, w_exposure;
    reg [4:0] w_enabled, w_events;
    reg w_running, w_step;
    reg [63:0] w_step_by;
    reg signed [31:0] w_rate;
    reg [31:0] w_time, w_sequence;
    reg [95:0] w_opened;
    always @(posedge clk) begin
        if (!resetn) live <= 1'b1;
        w_events <= (write && write_address == 12'h04c ? w_events & ~write_data[4:0] : w_events) | happened;
        if (write && write_address == 12'h050) w_enabled <= write_data[4:0];
        if (write && write_address == 12'h060) {known_width, w_width} <= {1'b1, write_data[15:0]};
        if (write && write_address == 12'h064) {known_height, w_height} <= {1'b1, write_data[15:0]};
        if (write && write_address == 12'h068) {known_format, w_format} <= {1'b1, write_data};
        if (write && write_address == 12'h080) {known_period, w_period} <= {1'b1, write_data};
        if (write && write_address == 12'h084) {known_exposure, w_exposure} <= {1'b1, write_data};
        if (write && write_address == 12'h0e0) w_step_by[31:0] <= write_data;
        if (write && write_address == 12'h0e4) w_step_by[63:32] <= write_data;
        w_step <= write && write_address == 12'h0e4;
        if (write && write_address == 12'h0e8) w_rate <= write_data;
        w_running <= (w_running || start) && !stop;
        if (read && read_address == 12'h0a0) w_time <= now[63:32];
        if (read && read_address == 12'h0a8) w_sequence <= sequence_number[63:32];
        if (read && read_address == 12'h0c8) w_opened <= {open_start, open_sequence[63:32]};
        if (!resetn) begin
            {known_width, known_height, known_format, known_period, known_exposure} <= 5'd0;
            w_events <= 5'd0;
            w_enabled <= 5'd0;
            w_running <= 1'b0;
            w_time <= 32'd0;
            w_sequence <= 32'd0;
            w_opened <= 96'd0;
            w_step <= 1'b0;
            w_step_by <= 64'd0;
            w_rate <= 32'd0;
        end
    end

    always @(posedge clk)
        if (live && resetn) begin
            // The registers hold it,
            assert (events == w_events);
            assert (enabled == w_enabled);
            if (known_width) assert (width == w_width);
            if (known_height) assert (height == w_height);
            if (known_format) assert (format == w_format);
            if (known_period) assert (period == w_period);
            if (known_exposure) assert (exposure == w_exposure);
            assert (running == w_running);
            assert (time_high == w_time);
            assert (sequence_high == w_sequence);
            assert (opened == w_opened);
            assert (time_step == w_step);  // once
            assert (time_step_by == w_step_by);
            assert ($signed(time_rate) == (w_rate > 1000000 ? 1000000 : w_rate < -1000000 ? -1000000 : w_rate));
            // and a read returns it.
            case (read_address)
                12'h000: assert (read_data == 32'h4d414354);
                12'h040: assert (read_data == {30'd0, control});
                12'h044: assert (read_data == 32'd0);
                12'h048: assert (read_data[0] == w_running);
                12'h04c: assert (read_data == {27'd0, w_events});
                12'h050: assert (read_data == {27'd0, w_enabled});
                12'h060: if (known_width) assert (read_data == {16'd0, w_width});
                12'h064: if (known_height) assert (read_data == {16'd0, w_height});
                12'h068: if (known_format) assert (read_data == w_format);
                12'h080: if (known_period) assert (read_data == w_period);
                12'h084: if (known_exposure) assert (read_data == w_exposure);
                12'h0a0: assert (read_data == now[31:0]);
                12'h0a4: assert (read_data == w_time);
                12'h0a8: assert (read_data == sequence_number[31:0]);
                12'h0ac: assert (read_data == w_sequence);
                12'h0c8: assert (read_data == open_sequence[31:0]);
                12'h0cc: assert (read_data == w_opened[31:0]);
                12'h0d0: assert (read_data == w_opened[63:32]);
                12'h0d4: assert (read_data == w_opened[95:64]);
                12'h0e0: assert (read_data == w_step_by[31:0]);
                12'h0e4: assert (read_data == w_step_by[63:32]);
                12'h0e8: assert (read_data == time_rate);
                default: ;
            endcase
            if (read_address >= 12'h100) assert (read_data == 32'd0);
            // Run and its edges.
            assert (!(start && stop));
            if (start) assert (!running && !control[0]);
            if (running) assert (control[0]);
            assert (user_interrupt == (|(w_events & w_enabled)));
        end
endmodule
