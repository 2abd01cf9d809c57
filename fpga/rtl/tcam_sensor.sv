// SPDX-License-Identifier: Apache-2.0
// The sensor's side: parallel samples with frame valid and line valid, in the sensor's clock, become a series of marks and
// samples in the stream's clock. An asynchronous queue is the only crossing. The stream's clock must be faster than the
// sensor's: then the queue, which passes one entry a cycle, never fills.

module tcam_sensor (
    input  wire        pixel_clk,
    input  wire        pixel_resetn,
    input  wire        frame_valid,
    input  wire        line_valid,
    input  wire [15:0] pixel,

    input  wire        clk,
    input  wire        resetn,
    output wire        valid,
    output wire [ 1:0] kind,    // 0 sample, 1 line ended, 2 frame ended, 3 frame begins
    output wire [15:0] sample
);
    localparam [1:0] SAMPLE = 2'd0, LINE_END = 2'd1, FRAME_END = 2'd2, FRAME_BEGIN = 2'd3;
    localparam integer AW = 4;

    // Pixel clock: what changed. Frame valid must rise a cycle before line valid, and stay low for three cycles.
    reg frame_was, line_was;
    reg push;
    reg [17:0] entry;
    wire in_line = frame_valid && line_valid;
    always @(posedge pixel_clk) begin
        push <= 1'b1;
        if (frame_valid && !frame_was) begin
            frame_was <= 1'b1;
            entry <= {FRAME_BEGIN, 16'd0};
        end else if (in_line) begin
            line_was <= 1'b1;
            entry <= {SAMPLE, pixel};
        end else if (line_was) begin
            line_was <= 1'b0;
            entry <= {LINE_END, 16'd0};
        end else if (frame_was && !frame_valid) begin
            frame_was <= 1'b0;
            entry <= {FRAME_END, 16'd0};
        end else push <= 1'b0;
        if (!pixel_resetn) begin
            frame_was <= 1'b0;
            line_was <= 1'b0;
            push <= 1'b0;
        end
    end

    // Gray code: one bit of a pointer changes at a time, so that the other clock sees the old value or the new one.
    reg [17:0] queue[0:(1<<AW)-1];
    reg [AW:0] head, head_gray, tail, tail_gray;
    (* ASYNC_REG = "TRUE" *) reg [AW:0] tail_1, tail_2;
    (* ASYNC_REG = "TRUE" *) reg [AW:0] head_1, head_2;
    wire [AW:0] head_next = head + 1'b1;
    wire [AW:0] tail_next = tail + 1'b1;
    wire full = head_gray == {~tail_2[AW:AW-1], tail_2[AW-2:0]};
    wire empty = tail_gray == head_2;

    always @(posedge pixel_clk) begin
        if (!pixel_resetn) begin
            head <= 0;
            head_gray <= 0;
            tail_1 <= 0;
            tail_2 <= 0;
        end else begin
            tail_1 <= tail_gray;
            tail_2 <= tail_1;
            if (push && !full) begin
                queue[head[AW-1:0]] <= entry;
                head <= head_next;
                head_gray <= head_next ^ (head_next >> 1);
            end
        end
    end

    always @(posedge clk) begin
        if (!resetn) begin
            tail <= 0;
            tail_gray <= 0;
            head_1 <= 0;
            head_2 <= 0;
        end else begin
            head_1 <= head_gray;
            head_2 <= head_1;
            if (!empty) begin
                tail <= tail_next;
                tail_gray <= tail_next ^ (tail_next >> 1);
            end
        end
    end
    assign valid = !empty;
    assign {kind, sample} = queue[tail[AW-1:0]];
endmodule
