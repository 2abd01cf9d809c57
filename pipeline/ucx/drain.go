// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// What follows keeps the library from ending the process:
//   - A connection that has been taken and has not said yet what it wants stays when its listener is destroyed, and the library uses the
//     listener's freed memory when it speaks (uct_tcp_listener, every release so far).
//   - The library's thread remembers an event of a socket by its descriptor while the worker is busy. If the socket is closed before
//     progress is made, the event goes to the next one with that descriptor, and fails an assertion there if it says that there is room to
//     write (__ucs_async_poll_missed, 1.13 to 1.20). A rejection closes the socket at the moment of such an event.

const (
	unansweredFor = 50 * time.Millisecond  // how long a rejection waits for the answer to leave
	unheardFor    = 300 * time.Millisecond // how long a listener that ends waits for those who have connected
	glance        = 100 * time.Microsecond
)

// settle makes progress, which handles the events that the library's thread has left.
func (w *Worker) settle() { w.call(symWorkerProgress, w.handle) }

// refuse closes the connection of a request. It is accepted first, as a rejection of the library's is unsafe.
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

// drain waits until every connection that the listener has taken is heard and answered. The kernel takes no more of them, and those that
// say nothing are ended.
func (l *Listener) drain() {
	begin := time.Now()
	for clean := 0; clean < 2 && time.Since(begin) < unheardFor+lingering; time.Sleep(glance) { // a connection may be taken during the first look
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
					_ = unix.Shutdown(fd, unix.SHUT_RD) // the library sees the end, after what has come
				}
			}
		})
	}
}

// sockets calls f with the process's sockets at the listener's address. They are copies of the descriptors, as the library's thread may
// close those at any time.
func (l *Listener) sockets(f func(fd int)) {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, file := range files {
		fd, err := strconv.Atoi(file.Name())
		if err != nil {
			continue
		}
		if fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			continue
		}
		if name, err := unix.Getsockname(fd); err == nil {
			at := addrPort(name)
			if at.Port() == l.addr.Port() && (at.Addr() == l.addr.Addr().WithZone("") || l.addr.Addr().IsUnspecified()) {
				f(fd)
			}
		}
		unix.Close(fd)
	}
}

// deafen makes the kernel take no more connections for a listening socket, and reports whether some wait to be taken.
func deafen(fd int) bool {
	drop := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K} // no byte of any packet
	_ = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop})
	n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return n > 0
}

func listens(fd int) bool {
	v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	return err == nil && v != 0
}

// answered reports whether something was sent to the peer. Until there is an endpoint, nothing is.
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
