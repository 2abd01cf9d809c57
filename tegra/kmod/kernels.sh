#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compiles both modules against every kernel header package that Debian 11 and 12 (with backports) offer for
# arm64 and amd64, warnings being errors; those of Debian 13 come with programs that need its C library. Packages (about 150 MB) stay in the cache; nothing is installed on this machine.
#
#   tegra/kmod/kernels.sh [pattern of releases, as of grep -E]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tegracast/kernels
pattern=${1:-.}
sign=signed-by=/usr/share/keyrings/debian-archive-keyring.gpg
mkdir -p "$cache/lists/partial" "$cache/archives/partial" "$cache/debs"
cd "$cache"
{
	for suite in bullseye bookworm bookworm-backports; do
		echo "deb [$sign] http://deb.debian.org/debian $suite main"
	done
	for suite in bullseye bookworm; do
		echo "deb [$sign] http://deb.debian.org/debian-security $suite-security main"
	done
} > sources.list
cat > apt.conf <<END
APT::Architecture "amd64"; APT::Architectures {"amd64"; "arm64";}; APT::Sandbox::User "root";
Dir::State::Lists "$cache/lists"; Dir::State::status "/dev/null"; Dir::Cache "$cache";
Dir::Etc::sourcelist "$cache/sources.list"; Dir::Etc::sourceparts "/dev/null"; Acquire::Languages "none";
END
export APT_CONFIG=$cache/apt.conf
apt-get -qq update

# The real packages that the meta packages stand for, in every suite, with what they need.
field() { # PACKAGES: release, common headers, kbuild
	apt-cache show "$@" 2>/dev/null | sed -n 's/^Depends: //p' | tr -d ' ' | sed -E 's/\([^)]*\)//g'
}
metas=$(for arch in arm64 amd64; do for kind in "" cloud- rt-; do echo "linux-headers-$kind$arch:$arch"; done; done)
# shellcheck disable=SC2086
releases=$(field $metas | grep -o 'linux-headers-[^,]*' | sed 's/linux-headers-//' | sort -uV | grep -E "$pattern")
names=$(for release in $releases; do echo "linux-headers-$release:${release##*-}"; done)
# shellcheck disable=SC2086
needs=$(field $names | tr ',' '\n' | grep -oE '^linux-(headers-.*-common(-rt)?|kbuild-.*)$' | sort -u | sed -E 's/^(linux-kbuild.*)/\1:amd64/; s/^(.*common.*)/\1:all/')
missing=$(for name in $names $needs; do [ -e "debs/$name" ] || echo "$name"; done)
if [ -n "$missing" ]; then
	rm -f archives/*.deb
	# What an archive lists but no longer has is reported below.
	# shellcheck disable=SC2086
	(cd archives && apt-get -qq download $missing) || true
	for deb in archives/*.deb; do
		[ -e "$deb" ] || break # none came
		dpkg -x "$deb" root
		touch "debs/$(dpkg-deb -f "$deb" Package):$(dpkg-deb -f "$deb" Architecture)"
	done
fi

# Without pahole, and with the compiler of Debian 12 whatever the kernel was built with.
failed=0
for release in $releases; do
	arch=${release##*-}
	headers=$cache/root/usr/src/linux-headers-$release
	if [ ! -e "debs/linux-headers-$release:$arch" ]; then
		echo "$release is listed but cannot be had"
		continue
	fi
	sed -i -E "s|^include /usr/src|include $cache/root/usr/src|" "$headers/Makefile"
	case $arch in
	arm64) cross="ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu- CC=aarch64-linux-gnu-gcc" ;;
	*) cross="ARCH=x86 CC=gcc" ;;
	esac
	work=$(mktemp -d)
	cp -r "$here" "$work/kmod"
	cp -r "$here/../nvp2p" "$work/nvp2p"
	result=ok
	for module in nvp2p kmod; do
		# shellcheck disable=SC2086
		make -s -C "$headers" M="$work/$module" NVP2P="$work/kmod/nvp2p" $cross KCFLAGS=-Werror W=1 \
			CONFIG_DEBUG_INFO_BTF_MODULES= CONFIG_CC_HAS_MIN_FUNCTION_ALIGNMENT= modules > "$work/log" 2>&1 || {
			result=FAILED
			failed=1
			cat "$work/log"
			break
		}
	done
	rm -rf "$work"
	echo "$release $result"
done
exit $failed
