// SPDX-License-Identifier: Apache-2.0

package send

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// disciplines returns the kinds of queueing disciplines of an interface (rtnetlink(7), RTM_GETQDISC), such as "fq".
func disciplines(name string) ([]string, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	dump, err := dumpDisciplines()
	if err != nil {
		return nil, fmt.Errorf("queueing disciplines: %w", err)
	}
	return parseDisciplines(dump, i.Index)
}

const tcmsg = 20 // size of struct tcmsg

// dumpDisciplines returns the kernel's list of all queueing disciplines, as netlink messages.
func dumpDisciplines() ([]byte, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	request := make([]byte, unix.SizeofNlMsghdr+tcmsg)
	ne.PutUint32(request, uint32(len(request)))
	ne.PutUint16(request[4:], unix.RTM_GETQDISC)
	ne.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, os.NewSyscallError("sendto", err)
	}
	var dump []byte
	for b := make([]byte, 1<<15); ; {
		n, _, err := unix.Recvfrom(fd, b, 0)
		if err != nil {
			return nil, os.NewSyscallError("recvfrom", err)
		}
		dump = append(dump, b[:n]...)
		if n < unix.SizeofNlMsghdr || ne.Uint16(b[4:]) == unix.NLMSG_DONE || ne.Uint16(b[4:]) == unix.NLMSG_ERROR {
			return dump, nil
		}
	}
}

// parseDisciplines returns the kinds for one interface from messages that contain a struct tcmsg and attributes.
func parseDisciplines(dump []byte, index int) ([]string, error) {
	messages, err := syscall.ParseNetlinkMessage(dump)
	if err != nil {
		return nil, fmt.Errorf("queueing disciplines: %w", err)
	}
	var kinds []string
	for _, m := range messages {
		if m.Header.Type != unix.RTM_NEWQDISC || len(m.Data) < tcmsg || int(ne.Uint32(m.Data[4:])) != index {
			continue
		}
		for b := m.Data[tcmsg:]; len(b) >= 4; {
			n, kind := int(ne.Uint16(b)), ne.Uint16(b[2:])
			if n < 4 || n > len(b) {
				break
			}
			if kind == unix.TCA_KIND {
				kinds = append(kinds, strings.TrimRight(string(b[4:n]), "\x00"))
			}
			b = b[min((n+3)&^3, len(b)):]
		}
	}
	return kinds, nil
}
