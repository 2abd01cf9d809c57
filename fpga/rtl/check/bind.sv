// SPDX-License-Identifier: Apache-2.0
// The checks that the simulation makes at every cycle. That of the CRC would slow it down; there the tests compare it with the
// software's.

bind tcam_axi check_axi check (.*);
bind tcam_registers check_registers check (.*);
bind tcam_frames check_frames #(.BUFFERS(BUFFERS), .BW(BW)) check (.*);
bind tcam_send check_send #(.AW(AW)) check (.*);
bind tcam_sensor check_sensor check (.*);
