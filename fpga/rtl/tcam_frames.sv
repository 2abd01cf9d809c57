// SPDX-License-Identifier: Apache-2.0
// When frames are exposed, where they lie, and what becomes of them: the frame timer and the triggers, the books of the
// frame memory, and the counters. Here is the rule of docs/fpga-interface.md, "When the host is slow".

module tcam_frames #(
    parameter integer BUFFERS = 2,  // a power of two
    parameter integer BW = 1
) (
    input  wire         clk,
    input  wire         resetn,
    input  wire [ 63:0] now,
    input  wire         step,             // a cycle: now is about to be step_by more
    input  wire [ 63:0] step_by,
    input  wire         start,
    input  wire         stop,
    input  wire         running,
    input  wire         triggered,
    input  wire         start_triggered,  // the mode at a start
    input  wire         trigger,
    input  wire [ 31:0] period,
    input  wire [ 31:0] exposure,
    input  wire         detached,      // the channel has stopped

    input  wire         source_busy,
    output reg          frame_taken,   // a cycle: a frame has been exposed
    output reg          frame_kept,    // with it: it goes into the frame memory
    output reg          frame_read,    // with it: the source reads it out
    output wire         cancel,        // what is being written is not wanted any more
    output reg          filling,       // what the source reads out goes into the frame memory
    output reg [BW-1:0] fill,          // the buffer that is written, or was written last
    output reg  [ 63:0] taken_number,
    output reg  [ 63:0] taken_start,
    output reg  [ 63:0] taken_end,
    output reg          taken_triggered,
    input  wire         written,       // a cycle: a frame is in the memory whole
    input  wire         short_frame,   // with it: it was padded
    input  wire         torn_frame,    // with it: samples were lost

    output wire         begin_packet,
    output reg [BW-1:0] first,         // the oldest frame's buffer
    input  wire         open,
    input  wire         finished,
    input  wire         forced,

    output wire         exposed_now,
    output reg          expose,        // the line to the sensor
    output reg  [ 63:0] sequence_number,
    output wire [159:0] counters,
    output wire [  3:0] happened       // dropped, padded, samples lost, trigger missed
);
    reg          exposing, stale;  // stale: the open packet is of an earlier start
    reg  [ 63:0] due, due_end;
    reg  [ BW:0] used;
    reg  [ 31:0] delivered, dropped, padded, missed;
    assign counters = {32'd0, missed, padded, dropped, delivered};

    wire         take = exposing && now >= due_end;
    wire         free = used != BUFFERS[BW:0];
    wire         keep = take && free && !source_busy && !detached;
    wire         flush = detached && used != 0;
    wire         leave = finished && open;
    wire         fill_is_first = fill == first && used != 0;
    wire         keep_open = start && open && !leave;
    assign cancel = filling && (flush || (start && !(keep_open && fill_is_first)) || (leave && fill_is_first));
    assign begin_packet = !open && used != 0 && !detached && !start && !frame_kept;  // the books of a frame are a cycle behind it
    assign exposed_now = exposing && now >= due;

    wire [BW:0]  flushed = used - {{BW{1'b0}}, stale || leave};  // what leaves in this cycle is not dropped by it
    wire         force_drop = leave && forced && !stale;
    wire [31:0]  drops = (flush ? {{(31 - BW) {1'b0}}, flushed} : 32'd0) + (force_drop ? 32'd1 : 32'd0) +
        (take && !keep ? 32'd1 : 32'd0);
    wire         ours = !(stale && fill_is_first);
    wire         miss = trigger && running && triggered && exposing;
    assign happened = {miss, written && filling && torn_frame && ours, written && filling && short_frame && ours, drops != 32'd0};
    wire [63:0]  next_due = due + {32'd0, period};
    wire [63:0]  moved = step ? step_by : 64'd0;  // the timer moves with the counter

    always @(posedge clk) begin
        frame_taken <= take;
        frame_kept <= keep;
        frame_read <= take && !source_busy;
        if (take) begin
            taken_number <= sequence_number;
            taken_start <= due;
            taken_end <= due_end;
            taken_triggered <= triggered;
            sequence_number <= sequence_number + 64'd1;
            exposing <= !triggered;
            due <= next_due + moved;
            due_end <= next_due + {32'd0, exposure} + moved;
        end else begin
            due <= due + moved;
            due_end <= due_end + moved;
        end
        if (start || (trigger && running && triggered && !exposing)) begin
            due <= now + moved;
            due_end <= now + {32'd0, exposure} + moved;
        end
        if (trigger && running && triggered && !exposing) exposing <= 1'b1;
        if (miss) missed <= missed + 32'd1;
        expose <= exposed_now && !take;

        // The frame memory is a ring of buffers.
        if (keep) begin
            fill <= first + used[BW-1:0];
            filling <= 1'b1;
        end
        if (written || cancel) filling <= keep;
        used <= used + {{BW{1'b0}}, keep} - {{BW{1'b0}}, leave};
        if (leave) begin
            first <= first + 1'b1;
            stale <= 1'b0;
        end
        if (leave && !forced && !stale) delivered <= delivered + 32'd1;
        dropped <= dropped + drops;
        if (happened[1]) padded <= padded + 32'd1;
        if (flush) begin
            used <= 0;
            stale <= 1'b0;
        end
        if (stop) exposing <= 1'b0;
        if (start) begin
            exposing <= !start_triggered;
            sequence_number <= 64'd0;
            delivered <= 32'd0;
            dropped <= 32'd0;
            padded <= 32'd0;
            missed <= 32'd0;
            used <= {{BW{1'b0}}, keep_open && !flush};
            stale <= keep_open && !flush;
        end
        if (!resetn) begin
            frame_taken <= 1'b0;
            frame_kept <= 1'b0;
            frame_read <= 1'b0;
            exposing <= 1'b0;
            filling <= 1'b0;
            expose <= 1'b0;
            stale <= 1'b0;
            used <= 0;
            first <= 0;
            fill <= 0;
            sequence_number <= 64'd0;
            delivered <= 32'd0;
            dropped <= 32'd0;
            padded <= 32'd0;
            missed <= 32'd0;
        end
    end
endmodule
