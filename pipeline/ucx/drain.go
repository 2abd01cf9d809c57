// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/flood"
)

// The code below works around two bugs that would crash the process:
//   - If a listener is destroyed while a connection that it accepted has not sent anything yet, the connection stays.
//     When it then sends something, the library uses the freed memory of the listener (uct_tcp_listener, every release
//     so far).
//   - While the worker is busy, the library's thread remembers an event of a socket by its file descriptor. If the
//     socket is closed before progress is made, the event goes to the next socket with that descriptor; a "ready to
//     write" event then fails an assertion (__ucs_async_poll_missed, 1.13 to 1.20). A rejection closes the socket just
//     when such an event occurs.

const (
	unansweredFor = 50 * time.Millisecond  // maximum time for which a rejection waits until the reply is sent
	unheardFor    = 300 * time.Millisecond // time for which a closing listener waits for silent clients
	glance        = 100 * time.Microsecond
)

// settle makes progress, which handles the events left by the library's thread.
func (w *Worker) settle() { w.call(symWorkerProgress, w.handle) }

// refuse closes the connection of a request. It accepts the connection first, because the library's own rejection is
// unsafe.
func (r *ConnRequest) refuse() error {
	w := r.listener.worker
	delete(r.listener.pending, r)
	e, err := w.newEndpoint(r.params(), r.peer(), EndpointOptions{})
	if err != nil {
		return err
	}
	for until := time.Now().Add(unansweredFor); time.Now().Before(until); time.Sleep(glance) {
		w.settle()
		waits := false
		r.listener.sockets(func(fd int) { waits = waits || peerOf(fd) == r.from && !answered(fd) })
		if !waits {
			break
		}
	}
	e.force()
	w.settle()
	return nil
}

// drain waits until every connection that the listener has accepted has sent its request and has been answered. The
// kernel accepts no further ones; connections that stay silent are shut down. drain refuses pending requests, and waits
// for at most unheardFor + lingering.
func (l *Listener) drain() {
	begin := time.Now()
	for clean := 0; clean < 2 && time.Since(begin) < unheardFor+lingering; time.Sleep(glance) { // a connection may arrive during the first pass
		l.worker.settle()
		for r := range l.pending {
			_ = r.refuse()
		}
		clean++
		l.sockets(func(fd int) {
			if listens(fd) {
				if deafen(fd) {
					clean = 0
				}
			} else if !answered(fd) {
				clean = 0
				if time.Since(begin) > unheardFor {
					_ = unix.Shutdown(fd, unix.SHUT_RD) // the library first reads what has arrived, then sees the end
				}
			}
		})
	}
}

// sockets calls f with a duplicate of each of the process's sockets at the listener's address.
func (l *Listener) sockets(f func(fd int)) {
	sockets(func(fd int, at netip.AddrPort, _ bool) {
		if l.isAt(at) {
			f(fd)
		}
	})
}

// deafen makes the kernel drop all further packets for a listening socket, and reports whether connections are waiting
// to be accepted.
func deafen(fd int) bool {
	_ = flood.AdmitNothing(fd)
	n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return n > 0
}

func listens(fd int) bool {
	v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	return err == nil && v != 0
}

// answered reports whether anything was sent to the peer. It also returns true if the kernel does not tell. Nothing is
// sent before there is an endpoint.
func answered(fd int) bool {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	return err != nil || info.Data_segs_out > 0
}

func peerOf(fd int) netip.AddrPort {
	name, err := unix.Getpeername(fd)
	if err != nil {
		return netip.AddrPort{}
	}
	return addrPort(name)
}

func addrPort(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return netip.AddrPort{}
}
