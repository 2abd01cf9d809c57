// SPDX-License-Identifier: Apache-2.0

package flood

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Everyone contains the networks of all addresses. It must not be changed.
var Everyone = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}

// AdmitFrom makes the kernel drop all packets at a listening TCP socket that do not come from one of the networks.
// Their senders cannot connect, and get no answer. It returns an error if there are too many networks for a filter.
func AdmitFrom(fd int, networks []netip.Prefix) error {
	return admit(fd, networks, []unix.SockFilter{accept})
}

// AdmitMessages is AdmitFrom for a protocol in which each side sends a message and waits for the answer. A message has
// a header of 16 bytes, whose first 8 contain the number of bytes after the header, less than 65536, little-endian. The
// kernel also drops segments that contain data other than exactly one message.
func AdmitMessages(fd int, networks []netip.Prefix) error {
	return admit(fd, networks, wholeMessage())
}

func admit(fd int, networks []netip.Prefix, rest []unix.SockFilter) error {
	f := append(fromNetworks(networks), rest...)
	if len(f) > mostInstructions {
		return fmt.Errorf("%d address ranges are more than the kernel compares: use fewer and larger ones", len(networks))
	}
	return attach(fd, f)
}

// Numbers for the filter of a TCP socket, which sees a segment from the TCP header on.
const (
	mostInstructions = 4096 // BPF_MAXINSNS
	dataOffset       = 12   // of the TCP header: its length in words is in the upper half of this byte (RFC 9293 §3.1)
	messageHead      = 16
)

// fromNetworks returns instructions that continue with the instruction after them if a packet comes from one of the
// networks, and drop all others.
func fromNetworks(networks []netip.Prefix) (f []unix.SockFilter) {
	f = []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: netHeader}, // the IP version is in the upper half
		{Code: unix.BPF_ALU | unix.BPF_RSH | unix.BPF_K, K: 4},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 4, Jf: 1},
	}
	of4, of6 := sources(networks, source4), sources(networks, source6)
	f = append(f, jump(1), jump(len(of4)))
	for _, part := range [][]unix.SockFilter{of4, of6} {
		f = append(f, part...)
	}
	for i := range f { // the places of a match jump to the end
		if f[i].Code == matched {
			f[i] = jump(len(f) - i - 1)
		}
	}
	return f
}

// matched is the code of an instruction that stands for a jump to the end until the position of the end is known.
const matched = 0xffff

// jump returns an instruction that skips n instructions.
func jump(n int) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA, K: uint32(n)}
}

// sources returns instructions that compare the source address, at offset at in the packet, with the networks of its
// family. They end with drop.
func sources(networks []netip.Prefix, at uint32) (f []unix.SockFilter) {
	for _, n := range networks {
		if n.Addr().Is4() != (at == source4) {
			continue
		}
		b, left := n.Masked().Addr().AsSlice(), n.Bits()
		var words [][]unix.SockFilter
		for i := 0; left > 0; i, left = i+4, left-32 {
			mask := ^uint32(0) << max(0, 32-left)
			words = append(words, []unix.SockFilter{
				word(at + uint32(i)), {Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: mask}, {K: binary.BigEndian.Uint32(b[i:])},
			})
		}
		for i, w := range words {
			w[2] = unless(w[2].K, 3*(len(words)-1-i)+1)
			f = append(f, w...)
		}
		f = append(f, unix.SockFilter{Code: matched})
	}
	return append(f, drop)
}

// wholeMessage returns instructions that accept segments without data and those that are exactly one message, and drop
// all others.
func wholeMessage() []unix.SockFilter {
	const data, length = 0, 1                              // words of the filter's memory
	load := func(size uint16, at uint32) unix.SockFilter { // of the data; X has the length of the TCP header
		return unix.SockFilter{Code: unix.BPF_LD | size | unix.BPF_IND, K: at}
	}
	return []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: dataOffset},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0xf0},
		{Code: unix.BPF_ALU | unix.BPF_RSH | unix.BPF_K, K: 2}, // bytes
		{Code: unix.BPF_MISC | unix.BPF_TAX},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_LEN},
		{Code: unix.BPF_ALU | unix.BPF_SUB | unix.BPF_X},
		unless(0, 1), accept,
		{Code: unix.BPF_ST, K: data},
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: messageHead, Jf: 14},
		load(unix.BPF_W, 2), unless(0, 12),
		load(unix.BPF_H, 6), unless(0, 10),
		load(unix.BPF_B, 1),
		{Code: unix.BPF_ALU | unix.BPF_LSH | unix.BPF_K, K: 8},
		{Code: unix.BPF_ST, K: length},
		load(unix.BPF_B, 0),
		{Code: unix.BPF_LDX | unix.BPF_MEM, K: length},
		{Code: unix.BPF_ALU | unix.BPF_ADD | unix.BPF_X},
		{Code: unix.BPF_ALU | unix.BPF_ADD | unix.BPF_K, K: messageHead},
		{Code: unix.BPF_LDX | unix.BPF_MEM, K: data},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_X, Jf: 1},
		accept, drop,
	}
}
