// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"net"
	"sync"
	"time"
)

// Times by which a calm connection waits for more.
const (
	readPace   = pace
	writeDelay = 2 * time.Millisecond
	mostOut    = 64 << 10 // bytes that are written at once
)

// plainly connects.
func plainly(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// A paced connection has the kernel called a hundred times a second, however many acknowledgements there are: what comes is read together.
// The costs of a message are mostly those of such calls, and of waking who makes them.
type paced struct {
	net.Conn
	last time.Time // of reading
}

// Read implements net.Conn.
func (c *paced) Read(b []byte) (int, error) {
	if wait := readPace - time.Since(c.last); wait > 0 {
		time.Sleep(wait)
	}
	n, err := c.Conn.Read(b)
	c.last = time.Now()
	return n, err
}

// A calm connection is paced, and writes in the same way: what is written leaves together a little later.
type calm struct {
	paced

	mu      sync.Mutex
	out     []byte
	leaves  *time.Timer
	planned bool // it will leave
	failed  error
}

func newCalm(c net.Conn) *calm {
	x := &calm{paced: paced{Conn: c}}
	x.leaves = time.AfterFunc(time.Hour, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.planned = false
		x.flush()
	})
	return x
}

// Write implements net.Conn. An error is told by the next call.
func (c *calm) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		return 0, c.failed
	}
	c.out = append(c.out, b...)
	switch {
	case len(c.out) >= mostOut:
		c.flush()
		if c.failed != nil {
			return 0, c.failed
		}
	case !c.planned:
		c.planned = true
		c.leaves.Reset(writeDelay)
	}
	return len(b), nil
}

func (c *calm) flush() {
	if len(c.out) == 0 || c.failed != nil {
		return
	}
	_ = c.Conn.SetWriteDeadline(time.Now().Add(writeTime)) // a connection that is closed fails below
	_, c.failed = c.Conn.Write(c.out)
	c.out = c.out[:0]
}

// SetWriteDeadline implements net.Conn: flush has its own.
func (c *calm) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline implements net.Conn.
func (c *calm) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// Close implements net.Conn. What is on its way leaves first, if it can.
func (c *calm) Close() error {
	c.leaves.Stop()
	c.mu.Lock()
	if c.failed == nil {
		_ = c.Conn.SetWriteDeadline(time.Now().Add(writeDelay))
		_, _ = c.Conn.Write(c.out)
		c.out, c.failed = nil, net.ErrClosed
	}
	c.mu.Unlock()
	return c.Conn.Close()
}
