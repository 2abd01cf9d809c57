// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/flood"
	"github.com/tegracast/tegracast/pipeline/resolve"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

var ne = binary.NativeEndian // the byte order of kernel structs

// A Destination is the name and address of a receiver.
type Destination struct {
	Name string // "host:port", as written
	Addr netip.AddrPort
}

// Resolve looks up the host of a destination "host:port". It returns within resolve.Limit.
func Resolve(ctx context.Context, dest string) (Destination, error) {
	if err := CheckDestination(dest); err != nil {
		return Destination{}, fmt.Errorf("%w: %w", ErrDestination, err)
	}
	addr, err := resolve.AddrPort(ctx, "udp", dest)
	if err != nil {
		return Destination{}, fmt.Errorf("%w: %s: %w", ErrDestination, dest, err)
	}
	return Destination{dest, addr}, nil
}

// ResolveAll looks up all destinations concurrently. If any fails it returns all errors, and no destinations.
func ResolveAll(ctx context.Context, dests []string) ([]Destination, error) {
	list, err := resolveEach(ctx, dests)
	if err != nil {
		return nil, err
	}
	return list, nil
}

// resolveEach looks up all destinations concurrently. Those that fail are zero in the list, and the error joins their
// errors.
func resolveEach(ctx context.Context, dests []string) ([]Destination, error) {
	list, errs := make([]Destination, len(dests)), make([]error, len(dests))
	var all sync.WaitGroup
	for i, d := range dests {
		all.Go(func() { list[i], errs[i] = Resolve(ctx, d) })
	}
	all.Wait()
	return list, errors.Join(errs...)
}

// A socket is connected to the RTP port of a destination. Its RTCP socket has the next local port.
type socket struct {
	addr       netip.AddrPort // destination's address, with the port of RTP
	rtcp       netip.AddrPort
	fd         int
	conn       *net.UDPConn  // RTCP in both directions
	ended      chan struct{} // closed with conn
	rtcpSender *rtcpSender
	link       string  // name of the interface; "" if unknown
	speed      float64 // of the interface in bits per second; 0 if unknown
	buffer     int     // granted size of the RTP socket's send buffer in bytes
}

// open opens the sockets for RTP to addr and for RTCP to the port after it. buffer is the requested size of the RTP
// socket's send buffer in bytes.
func open(addr netip.AddrPort, c Config, buffer int) (s socket, err error) {
	s = socket{addr: addr, rtcp: netip.AddrPortFrom(addr.Addr(), addr.Port()+1), ended: make(chan struct{})}
	for range 16 { // the port after a free one may be in use
		if s.fd, s.buffer, err = dial(addr, c, buffer); err != nil {
			return s, err
		}
		if s.conn, s.rtcpSender, err = listenAfter(s.fd, c, s.rtcp); err == nil {
			if s.link = c.Interface; s.link == "" || !addr.Addr().IsMulticast() {
				s.link = udp.InterfaceOf(s.local())
			}
			s.speed = linkSpeed("/sys", s.link)
			return s, nil
		}
		_ = unix.Close(s.fd)
		if !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	return s, fmt.Errorf("RTCP socket: %w", err)
}

// local returns the source address of the packets.
func (s *socket) local() netip.Addr {
	return s.conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}

func (s *socket) close() error {
	err := s.conn.Close() // before ended: a reader that pauses reads nothing more
	close(s.ended)
	return errors.Join(err, unix.Close(s.fd))
}

// listenAfter opens a UDP socket on the local address of fd and the port after that of fd, with the options of an RTP
// socket. It accepts only RTCP packets, and only from the address of dest unless that is a group.
func listenAfter(fd int, c Config, dest netip.AddrPort) (*net.UDPConn, *rtcpSender, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return nil, nil, err
	}
	local := udp.AddrPort(sa)
	if local.Port() == 65535 {
		return nil, nil, unix.EADDRINUSE
	}
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(local.Addr(), local.Port()+1)))
	if err != nil {
		return nil, nil, err
	}
	raw, err := conn.SyscallConn()
	if err == nil {
		var oerr error
		err = raw.Control(func(fd uintptr) {
			oerr = errors.Join(setOptions(int(fd), c, dest.Addr()), flood.Small(int(fd)), flood.AdmitRTCP(int(fd), peerOf(dest.Addr())))
		})
		err = errors.Join(err, oerr)
	}
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	return conn, newRTCPSender(raw, dest), nil
}

// peerOf returns the address from which a destination's RTCP packets come; the zero Addr means any.
func peerOf(dest netip.Addr) netip.Addr {
	if dest.IsMulticast() {
		return netip.Addr{}
	}
	return dest
}

// An rtcpSender sends to the RTCP port. Unlike a net.UDPConn it does not wait for room in the socket buffer, because
// other streams need the thread.
type rtcpSender struct {
	raw  syscall.RawConn
	dest unix.Sockaddr
	call func(fd uintptr) (done bool)
	b    []byte
	err  error
}

func newRTCPSender(raw syscall.RawConn, dest netip.AddrPort) *rtcpSender {
	t := &rtcpSender{raw: raw, dest: udp.Sockaddr(dest)}
	t.call = func(fd uintptr) bool {
		t.err = unix.Sendto(int(fd), t.b, unix.MSG_DONTWAIT, t.dest)
		return true
	}
	return t
}

// sendRTCP sends b without waiting, and reports whether it was sent.
func (t *rtcpSender) sendRTCP(b []byte) bool {
	t.b = b
	return t.raw.Write(t.call) == nil && t.err == nil
}

// ipOptions contains the numbers of socket options for one version of IP; dont is the value of discover that forbids
// fragmentation.
type ipOptions struct{ level, hops, multicastHops, class, discover, dont, errors int }

func optionsOf(a netip.Addr) ipOptions {
	if a.Is4() {
		return ipOptions{
			unix.IPPROTO_IP, unix.IP_TTL, unix.IP_MULTICAST_TTL, unix.IP_TOS,
			unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO, unix.IP_RECVERR,
		}
	}
	return ipOptions{
		unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, unix.IPV6_MULTICAST_HOPS, unix.IPV6_TCLASS,
		unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO, unix.IPV6_RECVERR,
	}
}

// setOptions sets TTL, DSCP and the multicast interface of a socket that sends to dest, and forbids fragmentation.
func setOptions(fd int, c Config, dest netip.Addr) error {
	o := optionsOf(dest)
	set := func(name string, opt, value int) error {
		return os.NewSyscallError("setsockopt "+name, unix.SetsockoptInt(fd, o.level, opt, value))
	}
	err := set("MTU_DISCOVER", o.discover, o.dont) // forbids fragmentation: sending fails instead of losing packets by lost fragments
	if c.DSCP > 0 {
		err = errors.Join(err, set("TOS", o.class, c.DSCP<<2))
	}
	if !dest.IsMulticast() {
		if c.TTL > 0 {
			err = errors.Join(err, set("TTL", o.hops, c.TTL))
		}
		return err
	}
	if c.TTL > 0 {
		err = errors.Join(err, set("MULTICAST_TTL", o.multicastHops, c.TTL))
	}
	if c.Interface == "" {
		return err
	}
	i, ierr := net.InterfaceByName(c.Interface)
	if ierr != nil {
		return errors.Join(err, fmt.Errorf("interface %s: %w: see ip link", c.Interface, ierr))
	}
	if dest.Is4() {
		ierr = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(i.Index)})
	} else {
		ierr = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, i.Index)
	}
	return errors.Join(err, os.NewSyscallError("setsockopt MULTICAST_IF", ierr))
}

// dial returns a non-blocking UDP socket that is connected to dest, and the size of its buffer. It fails if c.MTU is
// more than the path allows. The socket is not registered with the Go runtime, whose epoll would wake up for each
// buffer that the kernel frees.
func dial(dest netip.AddrPort, c Config, buffer int) (_, granted int, err error) {
	fd, err := unix.Socket(udp.Family(dest.Addr()), unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, 0, os.NewSyscallError("socket", err)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	if err = setOptions(fd, c, dest.Addr()); err != nil {
		return -1, 0, err
	}
	if granted, err = udp.SetBuffer(fd, unix.SO_SNDBUF, buffer); err != nil {
		return -1, 0, err
	}
	if err = flood.AdmitNothing(fd); err != nil { // nothing reads incoming packets, and when they fill the buffer the socket accepts no ICMP answers
		return -1, 0, err
	}
	o := optionsOf(dest.Addr()) // without RECVERR the kernel does not report that no neighbour answers
	if err = os.NewSyscallError("setsockopt RECVERR", unix.SetsockoptInt(fd, o.level, o.errors, 1)); err != nil {
		return -1, 0, err
	}
	if err = unix.Connect(fd, udp.Sockaddr(dest)); err != nil {
		return -1, 0, connectError(dest, err)
	}
	if mtu, e := pathMTU(fd, dest.Addr()); e == nil && mtu < c.MTU {
		err = fmt.Errorf("the path takes packets of %d bytes, mtu is %d: set mtu to %d", mtu, c.MTU, mtu)
	}
	return fd, granted, err
}

// pathMTU returns the maximum packet size in bytes on the path of a connected socket, as far as the kernel knows.
func pathMTU(fd int, dest netip.Addr) (int, error) {
	opt := unix.IP_MTU
	if !dest.Is4() {
		opt = unix.IPV6_MTU
	}
	return unix.GetsockoptInt(fd, optionsOf(dest).level, opt)
}

// PathMTU returns the maximum size in bytes of a packet that can be sent to each of the destinations, ignoring those
// that cannot be resolved or have no route. It returns 0 if rtp.DefaultMTU is possible. It sends the destinations
// nothing, and returns within resolve.Limit. iface is the multicast interface; it may be empty.
func PathMTU(ctx context.Context, destinations []string, iface string) int {
	list, _ := resolveEach(ctx, destinations)
	least := rtp.DefaultMTU
	for _, d := range list {
		if d.Addr.IsValid() {
			least = min(least, mtuTo(d.Addr, iface))
		}
	}
	if least == rtp.DefaultMTU {
		return 0
	}
	return least
}

// mtuTo returns the maximum packet size to an address, or rtp.DefaultMTU if it is unknown.
func mtuTo(addr netip.AddrPort, iface string) int {
	fd, _, err := dial(addr, Config{Interface: iface}, 0)
	if err != nil {
		return rtp.DefaultMTU
	}
	defer unix.Close(fd)
	mtu, err := pathMTU(fd, addr.Addr())
	if err != nil {
		return rtp.DefaultMTU
	}
	return mtu
}

func connectError(dest netip.AddrPort, err error) error {
	remedy := ""
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EADDRNOTAVAIL):
		remedy = fmt.Sprintf(": no route: see ip route get %s; for multicast set the interface", dest.Addr())
	case errors.Is(err, unix.EINVAL) && dest.Addr().IsLinkLocalUnicast():
		remedy = fmt.Sprintf(": a link-local address needs its interface: [%s%%eth0]", dest.Addr().WithZone(""))
	case errors.Is(err, unix.EACCES):
		remedy = ": broadcast addresses are not supported: use a multicast group"
	}
	return fmt.Errorf("%w%s", os.NewSyscallError("connect", err), remedy)
}
