// SPDX-License-Identifier: Apache-2.0

package rtsp

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/pipeline/flood"
	"github.com/tegracast/tegracast/pipeline/guesses"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// conn is a client's connection, on which trains may be sent between answers.
type conn struct {
	*send.Conn
	close    func() // stops counting the connection; can be called several times
	server   *Server
	messages *messages
	digest   digest
	session  *session // nil: none has been set up

	read, said flood.Limit

	site  netip.Addr  // address or network of the client, see guesses.Site
	reads atomic.Bool // it is set up to read a stream

	// Guarded by listener.mu.
	first *time.Timer // closes the connection unless it has sent a request in time
	since time.Time   // time of the latest request, or of the connection if there was none
	asked bool
}

// Read reads from the client, at a limited rate. A client that sends more is slowed down by TCP's flow control.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	time.Sleep(c.read.Pause(time.Now()))
	return n, err
}

// hear counts a request or a packet from the client, and pauses if there are too many.
func (c *conn) hear() { time.Sleep(c.said.Pause(time.Now())) }

// Close implements net.Conn.
func (c *conn) Close() error {
	c.close()
	return c.Conn.Close()
}

// listener limits the number of connections, and of those per address that are not reading a stream. To make room for a
// new one beyond a limit, it closes one that is not reading: one that has sent no request, if any, or else the one that
// has been silent for longest.
type listener struct {
	net.Listener

	mu       sync.Mutex
	open     map[*conn]bool
	closed   bool
	patience time.Duration // time limit for the first request
}

const (
	maxConnections = 128 // more than maxReaders, so that there is always one that can be closed
	maxIdle        = 64  // maximum number of connections per address that are not reading
	firstLimit     = 10 * time.Second

	// Limits for reading from a connection, in pieces of at most 4 KiB, and for the requests and packets from it.
	readBurst = 32
	readEvery = 50 * time.Millisecond
	saidBurst = 20
	saidEvery = 25 * time.Millisecond
)

// next waits for a client, and returns its connection. An error ends the server.
func (l *listener) next() (*conn, error) {
	for {
		c, err := l.Accept()
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
		x := &conn{
			Conn: wire, digest: newDigest(), site: site,
			read: flood.Limit{Burst: readBurst, Every: readEvery}, said: flood.Limit{Burst: saidBurst, Every: saidEvery},
		}
		x.messages = newMessages(x)
		return l.countConn(x), nil
	}
}

// leastMissed returns the connection to close for a new one from site, or nil if there is room.
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

// quieter returns the connection that should rather be closed: one that has not yet sent a request, or else the one
// silent for longer.
func quieter(a, b *conn) *conn {
	if a == nil || a.asked && !b.asked || a.asked == b.asked && b.since.Before(a.since) {
		return b
	}
	return a
}

// countConn counts a connection until it is closed, and closes it if it sends no request in time. It returns c.
func (l *listener) countConn(c *conn) *conn {
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
	if l.closed {
		_ = c.Conn.Close()
	}
	return c
}

// closeAll closes all connections, and makes the listener close those that it accepts later.
func (l *listener) closeAll() {
	l.mu.Lock()
	l.closed = true
	all := slices.Collect(maps.Keys(l.open))
	l.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
}

// heard records a request.
func (l *listener) heard(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.first.Stop()
	c.since, c.asked = time.Now(), true
}
