#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the camera of fpga/rtl takes of an FPGA, by yosys: the counts of docs/results.md, and the cells on its longest path from a
# flip-flop or a memory to the next. No place and route, so no clock rate.
set -eu
cd "$(dirname "$0")/.."
design="read_verilog -sv tcam_*.sv; chparam -set MAX_WIDTH 640 -set MAX_HEIGHT 16 -set BEATS_LOG2 11 tcam_camera"
size() { # $1: synthesis, $2: cells where a path ends
	echo "$1:"
	yosys -p "$design; $1 -top tcam_camera; stat; ltp -noff $2 %n" |
		awk '/^=== / { text = "" } { text = text "\n" $0 } END { print text }' |
		grep -E '^ +[A-Z][A-Z0-9_]+ +[0-9]+$|Longest topological path'
}
size "synth_xilinx -flatten" "t:FD?E t:RAM* %u"
size synth_ecp5 "t:TRELLIS_FF t:DP16KD t:TRELLIS_DPR16X4 %u %u"
