// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/guesses"
)

// Health is answered even if everything else is exhausted: on connections beyond maxConnections while all others are
// busy, and with a file descriptor that is reserved for it.
const (
	maxReserved   = 4               // connections beyond maxConnections
	reservedLimit = 2 * time.Second // how long a connection may hold the reserved descriptor
)

// spareListener accepts a connection when the process has no file descriptors left: it lends its spare descriptor to the
// connection until the connection is closed.
type spareListener struct {
	net.Listener
	mu    sync.Mutex
	file  *os.File // nil: its descriptor is lent, another part of the process has taken it, or the listener is closed
	lent  bool     // a connection uses the descriptor
	ended bool
}

func newSpareListener(l net.Listener) *spareListener {
	s := &spareListener{Listener: l}
	s.refill()
	return s
}

// Accept implements net.Listener.
func (s *spareListener) Accept() (net.Conn, error) {
	conn, err := s.Listener.Accept()
	if !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) {
		s.refill()
		return conn, err
	}
	if !s.lend() {
		return nil, err
	}
	if conn, err = s.Listener.Accept(); err != nil {
		s.takeBack()
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(reservedLimit))
	return &spareConn{Conn: conn, closed: sync.OnceFunc(s.takeBack)}, nil
}

// Close implements net.Listener.
func (s *spareListener) Close() error {
	s.mu.Lock()
	s.ended = true
	if s.file != nil {
		_ = s.file.Close() // nothing was written
		s.file = nil
	}
	s.mu.Unlock()
	return s.Listener.Close()
}

// lend closes the spare file, so that a connection can have its descriptor. It returns false if there is none: a
// connection uses it already, or another part of the process has taken it.
func (s *spareListener) lend() bool {
	s.refill()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return false
	}
	_ = s.file.Close() // nothing was written
	s.file, s.lent = nil, true
	return true
}

// takeBack ends the loan of the descriptor.
func (s *spareListener) takeBack() {
	s.mu.Lock()
	s.lent = false
	s.mu.Unlock()
	s.refill()
}

// refill opens the spare file if there is none and its descriptor is not lent. If the process has no descriptor for it,
// the next connection tries again.
func (s *spareListener) refill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil && !s.lent && !s.ended {
		s.file, _ = os.Open(os.DevNull)
	}
}

// A spareConn uses the spare file's descriptor, and keeps the deadline with which it was accepted.
type spareConn struct {
	net.Conn
	closed func()
}

// Close implements net.Conn.
func (c *spareConn) Close() error {
	err := c.Conn.Close()
	c.closed()
	return err
}

// SetDeadline implements net.Conn.
func (*spareConn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (*spareConn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (*spareConn) SetWriteDeadline(time.Time) error { return nil }

// isSpare reports whether a connection uses the spare file's descriptor.
func isSpare(conn net.Conn) bool {
	if t, is := conn.(*tls.Conn); is {
		conn = t.NetConn()
	}
	_, is := conn.(*spareConn)
	return is
}

type peerKey struct{}

// withPeer implements http.Server's ConnContext.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	p := &peer{conn: conn, address: addressOf(conn)}
	_, p.admitted = conn.(*net.UnixConn)
	p.client = sync.OnceValue(func() guesses.Client { return guesses.Of(conn) })
	p.person = sync.OnceValue(func() bool { return guesses.IsPerson(conn) })
	return context.WithValue(ctx, peerKey{}, p)
}

// addressOf returns a client's address, or the zero Addr for a client of the socket.
func addressOf(conn net.Conn) netip.Addr {
	from, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
	return from.Addr().Unmap().WithZone("")
}

// peerOf returns the peer of a request's connection.
func peerOf(r *http.Request) *peer { return r.Context().Value(peerKey{}).(*peer) }

// reserveForHealth returns a handler that passes requests for health to health on every connection. On reserved
// connections it refuses all other requests, and closes the connection after any answer.
func (c *connections) reserveForHealth(health, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := peerOf(r).conn
		reserved := isSpare(conn) || c.isReserved(conn)
		if reserved {
			w.Header().Set("Connection", "close")
		}
		switch {
		case r.URL.Path == "/healthz" || r.URL.Path == "/readyz":
			leaveUnread(w, r)
			health.ServeHTTP(w, r)
		case reserved:
			refuseUnread(w, r, "all connections are in use: ask again later", http.StatusServiceUnavailable)
		default:
			next.ServeHTTP(w, r)
		}
	})
}
