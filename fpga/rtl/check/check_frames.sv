// SPDX-License-Identifier: Apache-2.0
// What tcam_frames must obey: each frame that was taken is delivered, dropped, or in the frame memory, at any time.

module check_frames #(
    parameter integer BUFFERS = 2,
    parameter integer BW = 1
) (
    input wire         clk,
    input wire         resetn,
    input wire         detached,
    input wire         begin_packet,
    input wire         open,
    input wire         finished,
    input wire         frame_taken,
    input wire         frame_kept,
    input wire [ 63:0] sequence_number,
    // of its inside
    input wire         stale,
    input wire [ BW:0] used,
    input wire [ 31:0] delivered,
    input wire [ 31:0] dropped
);
    reg live = 1'b0;
    always @(posedge clk) if (!resetn) live <= 1'b1;

    always @(posedge clk)
        if (live && resetn) begin
            if (open) assume (used != 0);  // a packet begins with a frame that is there, and keeps it
            if (finished) assume (open);
        end

    always @(posedge clk)
        if (live && resetn) begin
            assert (used <= BUFFERS);
            assert (sequence_number[31:0] == delivered + dropped + used - stale);
            if (stale) assert (used != 0);
            if (begin_packet) assert (!open && !detached && used != 0);
            if (frame_kept) assert (frame_taken);
        end
endmodule
