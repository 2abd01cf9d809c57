// SPDX-License-Identifier: Apache-2.0

package flood

import (
	"encoding/binary"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// smallBuffer is the size in bytes of the receive buffer of a Small socket. The kernel doubles it (socket(7)), and
// counts at least 768 bytes for each packet.
const smallBuffer = 8 << 10

// Small gives a socket a small receive buffer, for about 20 short packets. The kernel drops packets beyond these
// without waking anybody.
func Small(fd int) error {
	return os.NewSyscallError("setsockopt RCVBUF", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, smallBuffer))
}

// AdmitRTCP makes the kernel drop, at a UDP socket, packets that are not RTCP by their first two bytes (RFC 5761 §4),
// and those that do not come from peer, unless peer is the zero Addr.
func AdmitRTCP(fd int, peer netip.Addr) error {
	return attach(fd, rtcpFrom(peer))
}

// AdmitPeer makes the kernel drop packets at the UDP socket of an ICE session that do not come from peer. If checks is
// set, STUN binding requests (RFC 8489 §5) are accepted from everywhere, because they can move a session to another
// address.
func AdmitPeer(fd int, peer netip.Addr, checks bool) error {
	return attach(fd, fromPeer(peer, checks))
}

// AdmitNothing makes the kernel drop all packets that arrive at a socket. ICMP errors are reported as before.
func AdmitNothing(fd int) error {
	return attach(fd, []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}})
}

func attach(fd int, f []unix.SockFilter) error {
	p := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	return os.NewSyscallError("setsockopt ATTACH_FILTER", unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &p))
}

// Offsets in a packet as seen by the filter of a UDP socket, and the values to compare with. The packet begins with the
// UDP header; offsets from netHeader on refer to the IP header (Documentation/networking/filter.rst of Linux).
const (
	udpHeader  = 8
	netHeader  = 0xfff00000 // SKF_NET_OFF
	source4    = netHeader + 12
	source6    = netHeader + 8
	rtcpMask   = 0xc0e0 // version, and the upper bits of the packet type
	rtcpValue  = 0x80c0 // version 2, types 192 to 223
	stunCookie = udpHeader + 4
	stunMagic  = 0x2112a442
	stunCheck  = 1 // binding request
	wholeBytes = 1 << 16
)

// Instructions of a filter (classic BPF).
var (
	accept = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: wholeBytes}
	drop   = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
)

func half(at uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: at}
}

func word(at uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
}

// unless returns an instruction that jumps over the next skip instructions if the loaded value is not value.
func unless(value uint32, skip int) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: uint8(skip)}
}

// source returns instructions that compare the source address with peer and, if they differ, jump over the next skip
// instructions after the comparison.
func source(peer netip.Addr, skip int) (f []unix.SockFilter) {
	b, at := peer.AsSlice(), uint32(source6)
	if peer.Is4() {
		at = source4
	}
	for i := 0; i < len(b); i += 4 {
		left := (len(b) - i - 4) / 2 // instructions for the words after this one
		f = append(f, word(at+uint32(i)), unless(binary.BigEndian.Uint32(b[i:]), left+skip))
	}
	return f
}

// rtcpFrom returns the filter of AdmitRTCP.
func rtcpFrom(peer netip.Addr) []unix.SockFilter {
	from := source(peer, 1)
	f := []unix.SockFilter{
		half(udpHeader),
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: rtcpMask},
		unless(rtcpValue, len(from)+1),
	}
	return append(append(f, from...), accept, drop)
}

// fromPeer returns the filter of AdmitPeer.
func fromPeer(peer netip.Addr, checks bool) []unix.SockFilter {
	f := append(source(peer, 1), accept)
	if checks {
		f = append(f, half(udpHeader), unless(stunCheck, 3), word(stunCookie), unless(stunMagic, 1), accept)
	}
	return append(f, drop)
}
