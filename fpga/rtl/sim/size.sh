#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the camera of fpga/rtl takes of an FPGA, by yosys: the counts of docs/fpga-design.md. No place and route, so no clock rate.
set -eu
cd "$(dirname "$0")/.."
design="read_verilog -sv tcam_*.sv; chparam -set MAX_WIDTH 640 -set MAX_HEIGHT 16 -set BEATS_LOG2 11 tcam_camera"
for family in xilinx ecp5; do
	echo "synth_$family:"
	yosys -p "$design; synth_$family -top tcam_camera; stat" | awk '/^=== / { text = "" } { text = text "\n" $0 } END { print text }' |
		grep -E '^ +[A-Z][A-Z0-9_]+ +[0-9]+$'
done
