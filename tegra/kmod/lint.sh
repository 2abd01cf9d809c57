#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks both modules: compiler warnings (W=1) and sparse, checkpatch --strict, coccinelle's standard checks. It needs the
# packages sparse, coccinelle and gcc-aarch64-linux-gnu, the virtual Jetson's kernel headers (any test of it fetches
# them), and once the package linux-source-6.1 (140 MB), of which the scripts stay in the cache.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tegracast
scripts=$cache/linux-scripts/linux-source-6.1/scripts
headers=$(find "$cache/vjetson" -maxdepth 4 -path '*/usr/src/linux-headers-*-arm64' | sort -V | tail -n1)
[ -n "$headers" ] || { echo "no kernel headers in $cache/vjetson: go test ./board/vjetson fetches them" >&2; exit 1; }
if [ ! -e "$scripts/checkpatch.pl" ]; then
	mkdir -p "$cache/linux-scripts"
	(cd "$cache/linux-scripts" && apt-get -qq download linux-source-6.1 &&
		dpkg --fsys-tarfile linux-source-6.1_*.deb | tar xO ./usr/src/linux-source-6.1.tar.xz |
		tar xJ linux-source-6.1/scripts && rm linux-source-6.1_*.deb)
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

cp -r "$here" "$here/../nvp2p" "$work"
for module in nvp2p kmod; do
	make -s -C "$headers" M="$work/$module" ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu- KCFLAGS=-Werror W=1 C=2 CONFIG_DEBUG_INFO_BTF_MODULES= modules \
		> "$work/log" 2>&1 || failed=1
	grep -v 'Skipping BTF' "$work/log" && failed=1
done

# A module outside the kernel asks for versions and calls symbols that may be missing; UAPI headers cannot use BIT.
for file in "$here"/*.[ch] "$here"/nvp2p/*.h "$here"/../nvp2p/*.[ch] "$here"/kmodtest/testdata/*/*.c; do
	ignore=LINUX_VERSION_CODE,CONSTANT_COMPARISON,BIT_MACRO,AVOID_EXTERNS
	case $file in */trace.h) ignore=$ignore,OPEN_ENDED_LINE,PARENTHESIS_ALIGNMENT ;; esac # as all headers of tracepoints are
	perl "$scripts/checkpatch.pl" --no-tree --strict --max-line-length=100 --terse --no-summary \
		--ignore "$ignore" -f "$file" || failed=1
done

# Those in OCaml need its compiler, and have nothing to do with this code.
for check in $(grep -rL --include='*.cocci' ocaml "$scripts/coccinelle"); do
	for dir in "$here" "$here/../nvp2p"; do
		spatch -D report --very-quiet --no-includes --include-headers --cocci-file "$check" --dir "$dir" 2> "$work/errors" || failed=1
	done
done > "$work/log"
grep . "$work/log" && failed=1
exit $failed
