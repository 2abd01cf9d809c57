// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Health is answered when everything else is exhausted: on connections beyond maxConnections while all others are at work, and with a
// file descriptor that is kept for it.
const (
	maxReserved   = 4               // connections beyond maxConnections
	reservedLimit = 2 * time.Second // how long a connection may hold the reserved descriptor
)

// spareListener accepts a connection when the process has no file descriptors left: it gives up one that it keeps, until that connection
// is closed.
type spareListener struct {
	net.Listener
	mu    sync.Mutex
	file  *os.File // nil: a connection has its descriptor
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
	if !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) || !s.spend() {
		return conn, err
	}
	if conn, err = s.Listener.Accept(); err != nil {
		s.refill()
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(reservedLimit))
	return &spareConn{Conn: conn, closed: sync.OnceFunc(s.refill)}, nil
}

// Close implements net.Listener.
func (s *spareListener) Close() error {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.spend()
	return s.Listener.Close()
}

// spend closes the spare file. It returns false when a connection has its descriptor already.
func (s *spareListener) spend() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return false
	}
	_ = s.file.Close() // nothing was written
	s.file = nil
	return true
}

// refill opens the spare file again. It stays away when somebody else has taken the descriptor; the next connection that is closed tries again.
func (s *spareListener) refill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil && !s.ended {
		s.file, _ = os.Open(os.DevNull)
	}
}

// A spareConn has the spare file's descriptor, and the deadline with which it was accepted.
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

// isSpare reports whether a connection has the spare file's descriptor.
func isSpare(conn net.Conn) bool {
	if t, is := conn.(*tls.Conn); is {
		conn = t.NetConn()
	}
	_, is := conn.(*spareConn)
	return is
}

type connKey struct{}

// withConn is an http.Server's ConnContext.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// reserveForHealth answers health on every connection, and nothing else on the reserved ones, which it closes.
func (c *connections) reserveForHealth(health, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(connKey{}).(net.Conn)
		reserved := isSpare(conn) || c.isReserved(conn)
		if reserved {
			w.Header().Set("Connection", "close")
		}
		switch {
		case r.URL.Path == "/healthz" || r.URL.Path == "/readyz":
			health.ServeHTTP(w, r)
		case reserved:
			http.Error(w, "all connections are in use: ask again later", http.StatusServiceUnavailable)
		default:
			next.ServeHTTP(w, r)
		}
	})
}
