#!/bin/sh
# Compiles both modules against every kernel header package that Debian 11, 12 (with backports) and 13 offer for arm64
# and amd64, warnings being errors. Packages (about 150 MB) stay in the cache; nothing is installed on this machine.
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
	for suite in bullseye bookworm bookworm-backports trixie; do
		echo "deb [$sign] http://deb.debian.org/debian $suite main"
	done
	for suite in bullseye bookworm trixie; do
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

# The real packages that the meta packages stand for, in every suite.
releases=$(for arch in arm64 amd64; do
	for kind in "" cloud- rt-; do
		apt-cache show "linux-headers-$kind$arch:$arch" 2>/dev/null | sed -n 's/^Depends: linux-headers-\([^ ]*\).*/\1/p'
	done
done | sort -uV | grep -E "$pattern")

# fetch NAME: unpacks a package to root/, once.
fetch() {
	[ -e "debs/$1" ] && return
	(cd archives && rm -f ./*.deb && apt-get -qq download "$1" && dpkg -x ./*.deb "$cache/root")
	touch "debs/$1"
}

failed=0
for release in $releases; do
	arch=${release##*-}
	common=$(echo "$release" | sed -E 's/-(cloud-|rt-)?(arm64|amd64)$/-\1common/; s/-cloud-common/-common/')
	fetch "linux-headers-$release:$arch"
	fetch "linux-headers-$common:all" 2>/dev/null || fetch "linux-headers-$common"
	kbuild=$(dpkg-deb -f archives/*.deb Version >/dev/null 2>&1; apt-cache show "linux-headers-$release:$arch" |
		sed -n 's/^Depends:.*\(linux-kbuild-[^ ,]*\).*/\1/p' | head -n1)
	fetch "$kbuild:amd64"
	headers=$cache/root/usr/src/linux-headers-$release
	echo "include $cache/root/usr/src/linux-headers-$common/Makefile" > "$headers/Makefile"
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
		make -s -C "$headers" M="$work/$module" $cross KCFLAGS=-Werror W=1 modules > "$work/log" 2>&1 || {
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
