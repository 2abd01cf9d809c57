// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/flood"
)

// The library trusts every client: an impossible length fails an assertion, which ends the process, and so do many
// silent connections (every release so far). Therefore filters in the kernel protect it from clients that are not
// allowed to connect, from data that are no message of its connection manager (uct_tcp_sockcm_priv_data_hdr_t), and
// from silent connections.

// silentFor is the time in seconds for which the kernel holds back a connection on which nothing has arrived.
const silentFor = 600

// Admit lets only these networks connect to the worker: to its listeners, also later ones, and to the sockets over
// which connections continue. Others get no answer. An empty list admits nobody. Until Admit is called everyone may
// connect. Existing connections stay.
//
// Recent kernels let only processes with CAP_NET_ADMIN filter the packets of a TCP socket. Without it Admit returns an
// error that wraps fs.ErrPermission, and everyone may connect.
func (w *Worker) Admit(networks []netip.Prefix) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrClosed
	}
	w.admitted = networks
	errs := []error{guard(func(at netip.AddrPort) bool { return w.ports[at] }, networks, flood.AdmitFrom)}
	for _, l := range w.listeners {
		errs = append(errs, l.guard())
	}
	return errors.Join(errs...)
}

// guard makes the kernel keep clients from other networks away from the listener.
func (l *Listener) guard() error { return guard(l.isAt, l.worker.admitted, flood.AdmitMessages) }

// isAt reports whether a socket at an address belongs to the listener or to one of its connections.
func (l *Listener) isAt(at netip.AddrPort) bool {
	return at.Port() == l.addr.Port() && (at.Addr() == l.addr.Addr().WithZone("") || l.addr.Addr().IsUnspecified())
}

// guard attaches a filter for networks to the process's listening sockets at the selected addresses, and makes the
// kernel hold back silent connections to them.
func guard(meant func(at netip.AddrPort) bool, networks []netip.Prefix, filter func(fd int, networks []netip.Prefix) error) error {
	var errs []error
	sockets(func(fd int, at netip.AddrPort, _ bool) {
		if !meant(at) || !listens(fd) {
			return
		}
		err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, silentFor)
		if err = errors.Join(err, filter(fd, networks)); err != nil {
			errs = append(errs, fmt.Errorf("ucx: the clients of %v cannot be filtered: %w", at, err))
		}
	})
	return errors.Join(errs...)
}

// libraryPorts returns the addresses at which the library listens. Programs that this process starts inherit its
// sockets, unlike Go's.
func libraryPorts() map[netip.AddrPort]bool {
	list := map[netip.AddrPort]bool{}
	sockets(func(fd int, at netip.AddrPort, inherited bool) {
		if inherited && listens(fd) {
			list[at] = true
		}
	})
	return list
}

// sockets calls f for each socket of the process that has an address. inherited is true if programs that the process
// starts inherit it. fd is a duplicate, because the library's thread may close its descriptor at any time.
func sockets(f func(fd int, at netip.AddrPort, inherited bool)) {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, file := range files {
		number, err := strconv.Atoi(file.Name())
		if err != nil {
			continue
		}
		flags, _ := unix.FcntlInt(uintptr(number), unix.F_GETFD, 0)
		fd, err := unix.FcntlInt(uintptr(number), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			continue
		}
		if name, err := unix.Getsockname(fd); err == nil {
			if at := addrPort(name); at.IsValid() {
				f(fd, at, flags&unix.FD_CLOEXEC == 0)
			}
		}
		unix.Close(fd)
	}
}
