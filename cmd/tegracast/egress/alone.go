// SPDX-License-Identifier: Apache-2.0

package egress

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

// Alone refuses an appliance with a stream to where another process of this machine sends already: most often a second tegracast, whose packets
// no receiver could tell from these. Destinations that are a host's name, multicast groups, and those that a reload adds, are not looked at.
func Alone(c *config.Appliance) error {
	for _, o := range c.Outputs {
		stream, ok := o.Kind.(*config.RTP)
		if !ok {
			continue
		}
		for _, text := range stream.Destinations {
			to, err := netip.ParseAddrPort(text)
			if err != nil || to.Addr().IsMulticast() || to.Addr().Zone() != "" { // by several interfaces, that is no mistake
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

// senderTo is which other process has a socket that is connected to an address; empty: none.
func senderTo(to netip.AddrPort) string {
	file := "/proc/net/udp"
	if to.Addr().Is6() {
		file = "/proc/net/udp6"
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "" // there is no IPv6, or nothing to find out
	}
	const remote, inode = 2, 9 // columns (proc_net_tcp.rst of Linux has the same)
	want := procName(to)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > inode && f[remote] == want && owner("self", f[inode]) == "" {
			return cmp.Or(owner("[0-9]*", f[inode]), "another program of this machine")
		}
	}
	return ""
}

// procName is an address as /proc/net/udp writes it: 32-bit words of this processor's byte order, and the port.
func procName(a netip.AddrPort) string {
	var b strings.Builder
	for word := a.Addr().AsSlice(); len(word) > 0; word = word[4:] {
		fmt.Fprintf(&b, "%08X", binary.NativeEndian.Uint32(word))
	}
	return fmt.Sprintf("%s:%04X", &b, a.Port())
}

// owner names the process that has a socket, of those that match a pattern below /proc and that this user may look at.
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
