// SPDX-License-Identifier: Apache-2.0
// What tcam_sensor must obey: its queue is never full, so nothing that the sensor delivers is lost.

module check_sensor (
    input wire pixel_clk,
    input wire pixel_resetn,
    input wire push,
    input wire full
);
    reg live = 1'b0;
    always @(posedge pixel_clk) begin
        if (!pixel_resetn) live <= 1'b1;
        if (live && pixel_resetn) assert (!(push && full));
    end
endmodule
