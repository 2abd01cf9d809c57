// SPDX-License-Identifier: Apache-2.0

package udp

import (
	"net"
	"net/netip"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Family returns the address family of a socket for a.
func Family(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// Sockaddr converts an address to the type used in system calls. It drops a zone that is neither a number nor the name
// of an interface.
func Sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	s := &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	if zone := a.Addr().Zone(); zone != "" {
		if n, err := strconv.Atoi(zone); err == nil {
			s.ZoneId = uint32(n)
		} else if i, err := net.InterfaceByName(zone); err == nil {
			s.ZoneId = uint32(i.Index)
		}
	}
	return s
}

// AddrPort converts the address of an IP socket from the type used in system calls. For any other socket it returns the
// zero AddrPort.
func AddrPort(s unix.Sockaddr) netip.AddrPort {
	switch s := s.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(s.Addr), uint16(s.Port))
	case *unix.SockaddrInet6:
		a := netip.AddrFrom16(s.Addr)
		if s.ZoneId != 0 {
			a = a.WithZone(strconv.Itoa(int(s.ZoneId)))
		}
		return netip.AddrPortFrom(a, uint16(s.Port))
	}
	return netip.AddrPort{}
}

// SetBuffer requests a socket buffer of want bytes and returns the size that the kernel granted: half of the value that
// the kernel reports, which includes its own overhead (socket(7)).
func SetBuffer(fd, opt, want int) (granted int, err error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt, want); err != nil {
		return 0, os.NewSyscallError("setsockopt buffer", err)
	}
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, opt)
	return n / 2, os.NewSyscallError("getsockopt buffer", err)
}

// InterfaceOf returns the name of the interface with the local address a, or "" if there is none.
func InterfaceOf(a netip.Addr) string {
	all, _ := net.Interfaces()
	for _, i := range all {
		addrs, _ := i.Addrs()
		for _, x := range addrs {
			if p, err := netip.ParsePrefix(x.String()); err == nil && p.Addr().Unmap() == a.WithZone("") {
				return i.Name
			}
		}
	}
	return ""
}
