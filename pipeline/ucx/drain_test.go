// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// listenerUnheard closes a listener that has accepted a connection which sends nothing. The connection must end with
// it; otherwise the library would continue to read from it and use freed memory.
func listenerUnheard(t *testing.T) {
	w := worker(t, open(t))
	l := listen(t, w, loopback, func(*ConnRequest) {})
	l.sockets(func(fd int) { // as if the kernel had kept them to itself for long enough
		err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 0)
		if err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)); err != nil {
			t.Error(err)
		}
	})
	silent, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	begun, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer begun.Close()
	if _, err := begun.Write(make([]byte, 3)); err != nil { // part of a header
		t.Fatal(err)
	}
	tidy(t, l.Close())
	for _, c := range []net.Conn{silent, begun} {
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 1)); err == nil || n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a connection that has said nothing yet is open after the listener's end: %v", err)
		}
	}
	again, err := w.Listen(l.Addr(), func(*ConnRequest) {})
	if err != nil {
		t.Fatal(err)
	}
	tidy(t, again.Close())
}

// listenerRace closes listeners at the moment when clients connect.
func listenerRace(t *testing.T) {
	w := worker(t, open(t))
	for range 50 {
		l := listen(t, w, loopback, func(r *ConnRequest) { _ = r.Reject() })
		e := dial(t, w, l.Addr())
		tidy(t, l.Close())
		e.Abort()
	}
}
