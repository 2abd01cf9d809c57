// SPDX-License-Identifier: Apache-2.0

package guesses

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// Listener returns the user whose process listens at an address of this machine. found is false if there is none.
func Listener(at netip.AddrPort) (uid int, found bool) {
	for _, a := range []netip.Addr{at.Addr(), netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		for _, nobody := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} { // at the other end
			if uid, found = owner(netip.AddrPortFrom(a, at.Port()), netip.AddrPortFrom(nobody, 0)); found {
				return uid, true
			}
		}
	}
	return 0, false
}

// owner returns the user whose socket is connected from one address of this machine to another (proc_net_tcp,
// Documentation/networking). found is false if there is none.
func owner(from, to netip.AddrPort) (uid int, found bool) {
	for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		table, err := os.Open(path)
		if err != nil {
			continue // a kernel without IPv6
		}
		uid, found = userIn(table, from, to)
		_ = table.Close() // only read from
		if found {
			return uid, true
		}
	}
	return 0, false
}

// userIn returns the user of the socket with these addresses, given the text of /proc/net/tcp or tcp6. found is false
// if there is none.
func userIn(table io.Reader, from, to netip.AddrPort) (uid int, found bool) {
	const localField, remoteField, uidField = 1, 2, 7
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) <= uidField {
			continue
		}
		local, localErr := parseEndpoint(f[localField])
		remote, remoteErr := parseEndpoint(f[remoteField])
		uid, uidErr := strconv.Atoi(f[uidField])
		if localErr == nil && remoteErr == nil && uidErr == nil && local == from && remote == to {
			return uid, true
		}
	}
	return 0, false
}

// parseEndpoint parses an address and port of /proc/net/tcp or tcp6, such as 0100007F:1F90. The address
// consists of 32-bit words in this machine's byte order.
func parseEndpoint(text string) (netip.AddrPort, error) {
	address, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	number, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if len(b)%4 != 0 {
		return netip.AddrPort{}, fmt.Errorf("%q is no address", text)
	}
	for i := 0; i < len(b); i += 4 {
		binary.BigEndian.PutUint32(b[i:], binary.NativeEndian.Uint32(b[i:]))
	}
	a, is := netip.AddrFromSlice(b)
	if !is {
		return netip.AddrPort{}, fmt.Errorf("%q is no address", text)
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(number)), nil
}
