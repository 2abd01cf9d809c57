// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

// listen opens a non-blocking UDP socket on a port of m's address, and joins that address if it is a group.
func listen(m rtp.Media, port int, iface string) (fd int, err error) {
	at := netip.AddrPortFrom(m.Address, uint16(port))
	if local := m.Address; iface != "" && local.Zone() == "" && ambiguous(local) {
		if _, err := interfaceIndex(iface); err != nil {
			return -1, err
		}
		at = netip.AddrPortFrom(local.WithZone(iface), uint16(port))
	}
	fd, err = unix.Socket(udp.Family(m.Address), unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
			fd = -1
		}
	}()
	if m.Address.IsMulticast() { // several receivers on one machine may receive from a group
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return fd, os.NewSyscallError("setsockopt REUSEADDR", err)
		}
	}
	if err := unix.Bind(fd, udp.Sockaddr(at)); err != nil {
		return fd, bindError(at, err)
	}
	if !m.Address.IsMulticast() {
		return fd, nil
	}
	return fd, join(fd, m, iface)
}

// ambiguous reports whether an address needs a zone, because each link has its own (RFC 4007 §6).
func ambiguous(a netip.Addr) bool {
	return a.Is6() && (a.IsLinkLocalUnicast() || a.IsLinkLocalMulticast() || a.IsInterfaceLocalMulticast())
}

func interfaceIndex(name string) (int, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return 0, fmt.Errorf("there is no interface %s: ip link lists them", name)
	}
	return i.Index, nil
}

func bindError(at netip.AddrPort, err error) error {
	remedy := ""
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		remedy = fmt.Sprintf(": port %d is in use: stop the other receiver (see ss -ulpn)", at.Port())
	case errors.Is(err, unix.EADDRNOTAVAIL):
		remedy = ": the stream goes to another machine: receive it there, or send it here"
	case errors.Is(err, unix.EINVAL) && ambiguous(at.Addr()):
		remedy = ": name the interface at which the stream arrives"
	}
	return fmt.Errorf("%s: %w%s", at, os.NewSyscallError("bind", err), remedy)
}

// join joins the group of m, for packets from m.Source only if it is set (RFC 3678 §5.1).
func join(fd int, m rtp.Media, iface string) error {
	index := 0
	if iface != "" {
		var err error
		if index, err = interfaceIndex(iface); err != nil {
			return err
		}
	}
	level, opt := unix.IPPROTO_IP, unix.MCAST_JOIN_GROUP
	if !m.Address.Is4() {
		level = unix.IPPROTO_IPV6
	}
	req := binary.NativeEndian.AppendUint64(nil, uint64(index)) // group_req: a 32-bit index and padding, little-endian
	req = appendStorage(req, m.Address)
	if m.Source.IsValid() {
		opt = unix.MCAST_JOIN_SOURCE_GROUP
		req = appendStorage(req, m.Source)
	}
	if err := unix.SetsockoptString(fd, level, opt, string(req)); err != nil {
		return fmt.Errorf("join %s: %w: name the interface at which the stream arrives", m.Address, os.NewSyscallError("setsockopt", err))
	}
	return nil
}

// appendStorage appends a struct sockaddr_storage with the address a and port 0.
func appendStorage(b []byte, a netip.Addr) []byte {
	end := len(b) + 128
	b = binary.NativeEndian.AppendUint16(b, uint16(udp.Family(a)))
	b = append(b, 0, 0) // port
	if !a.Is4() {
		b = append(b, 0, 0, 0, 0) // flow label
	}
	b = append(b, a.AsSlice()...)
	return append(b, make([]byte, end-len(b))...)
}
