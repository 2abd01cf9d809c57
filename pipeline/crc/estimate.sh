#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# estimate.sh prints what the inner loops of CRC-32C on arm64 take by llvm-mca's models of processors, from the first cache:
# an estimate, not a measurement. It needs packages llvm-19 and gcc-aarch64-linux-gnu.
set -eu
cd "$(dirname "$0")"
mca=${LLVM_MCA:-llvm-mca-19}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
GOARCH=arm64 CGO_ENABLED=0 go test -c -o "$dir/test" .

# loop prints the instructions of function $1 from the target of its first jump back to that jump.
loop() {
	aarch64-linux-gnu-objdump -d --no-show-raw-insn --disassemble="$1.abi0" "$dir/test" | awk -F '\t' '
		/^ +[0-9a-f]+:/ {
			at[++n] = $1; gsub(/[ :]/, "", at[n])
			split($3, to, " ")
			line[n] = $2 ~ /^b(\.|$)/ ? $2 " ." : $2 " " $3
			if ($2 ~ /^b(\.|$)/ && to[1] < at[n]) {
				for (i = 1; i <= n; i++) if (at[i] >= to[1]) print line[i]
				exit
			}
		}'
}

# estimate prints the figures for function $1, whose loop takes $2 bytes.
estimate() {
	loop "$1" >"$dir/loop.s"
	for processor in neoverse-n1 cortex-a78; do # LLVM 19 takes the Cortex-A57 for the latter
		"$mca" -mtriple=aarch64 -mattr=+crc,+aes -mcpu=$processor -iterations=1000 "$dir/loop.s" 2>/dev/null | awk -v of="$processor, $1" -v bytes="$2" '
			/^Instructions:/ {instructions = $2}
			/^Total Cycles:/ {printf "%s: %.3f cycles and %.3f instructions a byte (estimate)\n", of, $3 / bytes / 1000, instructions / bytes / 1000}'
	done
}

estimate hash/crc32.castagnoliUpdate 16
estimate github.com/tegracast/tegracast/pipeline/crc.castagnoliStreams 256
