// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
)

// Alone refuses an appliance with a stream to an address to which another process of this machine already sends. That
// is usually a second tegracast, whose packets receivers could not tell apart. It does not check host names, multicast
// groups, addresses with a zone, or destinations that a reload adds.
func Alone(c *config.Appliance) error {
	for _, o := range c.Outputs {
		stream, ok := o.Kind.(*config.RTP)
		if !ok {
			continue
		}
		for _, text := range stream.Destinations {
			to, err := netip.ParseAddrPort(text)
			if err != nil || to.Addr().IsMulticast() || to.Addr().Zone() != "" { // several interfaces may send to one group
				continue
			}
			if who := senderTo(to); who != "" {
				return fmt.Errorf("output %q: %s sends to %s already, and a receiver would get both streams as one: "+
					"stop it, or give this output other destinations", o.Name, who, to)
			}
		}
	}
	return nil
}

// senderTo describes another process with a socket connected to an address, or returns "" if none is known.
func senderTo(to netip.AddrPort) string {
	file := "/proc/net/udp"
	if to.Addr().Is6() {
		file = "/proc/net/udp6"
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "" // no IPv6, or no information
	}
	const remote, inode = 2, 9 // columns; proc_net_tcp.rst of Linux describes them
	want := procName(to)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > inode && f[remote] == want && owner("self", f[inode]) == "" {
			return cmp.Or(owner("[0-9]*", f[inode]), "another program of this machine")
		}
	}
	return ""
}

// procName returns an address in the format of /proc/net/udp: 32-bit words in the processor's byte order, and the port.
func procName(a netip.AddrPort) string {
	var b strings.Builder
	for word := a.Addr().AsSlice(); len(word) > 0; word = word[4:] {
		fmt.Fprintf(&b, "%08X", binary.NativeEndian.Uint32(word))
	}
	return fmt.Sprintf("%s:%04X", &b, a.Port())
}

// owner describes the process that has the socket with this inode open, such as "process 42 (ffmpeg)", or returns "". It
// considers the folders of /proc that match the pattern processes and that this user may inspect.
func owner(processes, inode string) string {
	links, _ := filepath.Glob(filepath.Join("/proc", processes, "fd/*"))
	for _, link := range links {
		if what, err := os.Readlink(link); err != nil || what != "socket:["+inode+"]" {
			continue
		}
		process := filepath.Dir(filepath.Dir(link))
		name, err := os.ReadFile(filepath.Join(process, "comm"))
		if err == nil {
			return fmt.Sprintf("process %s (%s)", filepath.Base(process), strings.TrimSpace(string(name)))
		}
	}
	return ""
}
