// SPDX-License-Identifier: Apache-2.0

package rtsp

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/pipeline/accept"
	"github.com/tegracast/tegracast/pipeline/guesses"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// conn is a client's connection, on which trains may stand between the answers.
type conn struct {
	*send.Conn
	then      func() // behind the next answer; nil: nothing
	close     func() // once
	multicast bool   // the last SETUP has asked for it

	site  netip.Addr  // of the client
	reads atomic.Bool // it has been set up to read a stream

	// Guarded by listener.mu.
	first *time.Timer // closes it unless it asks for something
	since time.Time   // of the last request, or of its beginning
	asked bool
}

// Write writes an answer.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if then := c.then; then != nil && err == nil {
		c.then = nil
		then()
	}
	return n, err
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.close()
	return c.Conn.Close()
}

// listener bounds the connections. For one beyond a bound that which reads nothing, and has been silent for the longest time, is closed.
type listener struct {
	net.Listener
	log *slog.Logger

	mu       sync.Mutex
	open     map[*conn]bool
	patience time.Duration // for the first request
}

const (
	maxConnections = 128 // more than readers, so that there is one to close for a further one
	maxIdle        = 64  // connections of an address that read nothing
	firstLimit     = 10 * time.Second
)

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := accept.Next(l.Listener.Accept, l.log) // an error ends the server
		if err != nil {
			return nil, err
		}
		site := guesses.Site(c.RemoteAddr().String())
		if gone := l.leastMissed(site); gone != nil {
			_ = gone.Close()
		}
		wire, err := send.NewConn(c.(*net.TCPConn))
		if err != nil {
			_ = c.Close()
			continue
		}
		return l.add(&conn{Conn: wire, site: site}), nil
	}
}

// leastMissed is the connection that is to be closed for one more of a site; nil: there is room.
func (l *listener) leastMissed(site netip.Addr) *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all, own *conn
	idle := 0
	for c := range l.open {
		if c.reads.Load() {
			continue
		}
		all = quieter(all, c)
		if c.site == site {
			idle++
			own = quieter(own, c)
		}
	}
	switch {
	case idle >= maxIdle:
		return own
	case len(l.open) >= maxConnections:
		return all
	}
	return nil
}

// quieter is that of two connections which is missed less: one that has asked for nothing yet, or has been silent for longer.
func quieter(a, b *conn) *conn {
	if a == nil || a.asked && !b.asked || a.asked == b.asked && b.since.Before(a.since) {
		return b
	}
	return a
}

// add counts a connection until it is closed.
func (l *listener) add(c *conn) *conn {
	c.close = sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		c.first.Stop()
		delete(l.open, c)
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	c.since, c.first = time.Now(), time.AfterFunc(l.patience, func() { _ = c.Close() })
	l.open[c] = true
	return c
}

// heard notes a request.
func (l *listener) heard(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.first.Stop()
	c.since, c.asked = time.Now(), true
}
