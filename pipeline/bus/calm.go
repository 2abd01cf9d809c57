// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// mostOut is how many bytes are written at once.
const mostOut = 256 << 10

// plainly connects.
func plainly(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// A prompted connection is read when Run says so, once it is settled: in each of its rounds. The costs of a message are mostly those of
// calls of the kernel, and of waking who makes them; so acknowledgements are read together.
type prompted struct {
	net.Conn
	settled atomic.Bool
	prompt  chan struct{}
	more    bool // who reads has not seen all that has come
}

func newPrompted(c net.Conn) prompted { return prompted{Conn: c, prompt: make(chan struct{}, 1)} }

// next has who reads see what has come. Where nothing has, it is seen when it comes.
func (c *prompted) next() {
	select {
	case c.prompt <- struct{}{}:
	default:
	}
}

// Read implements net.Conn.
func (c *prompted) Read(b []byte) (int, error) {
	if !c.more && c.settled.Load() {
		<-c.prompt // ends: Run and Close prompt
	}
	n, err := c.Conn.Read(b)
	c.more = n == len(b)
	return n, err
}

// Close implements net.Conn.
func (c *prompted) Close() error {
	c.settled.Store(false)
	err := c.Conn.Close()
	c.next()
	return err
}

// A calm connection is prompted, and also what is written leaves in Run's rounds, once it is settled.
type calm struct {
	prompted

	mu     sync.Mutex
	out    []byte
	failed error
}

// Write implements net.Conn. An error is told by the next call.
func (c *calm) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		return 0, c.failed
	}
	if c.out = append(c.out, b...); len(c.out) >= mostOut || !c.settled.Load() {
		c.leave()
		if c.failed != nil {
			return 0, c.failed
		}
	}
	return len(b), nil
}

// flush has leave what was written.
func (c *calm) flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leave()
	return c.failed
}

func (c *calm) leave() {
	if len(c.out) == 0 || c.failed != nil {
		return
	}
	_ = c.Conn.SetWriteDeadline(time.Now().Add(writeTime)) // a connection that is closed fails below
	_, c.failed = c.Conn.Write(c.out)
	c.out = c.out[:0]
}

// SetWriteDeadline implements net.Conn: leave has its own.
func (c *calm) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline implements net.Conn.
func (c *calm) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// Close implements net.Conn. What is on its way leaves first, if it can at once.
func (c *calm) Close() error {
	c.mu.Lock()
	if c.failed == nil {
		_ = c.Conn.SetWriteDeadline(time.Now().Add(2 * time.Millisecond))
		_, _ = c.Conn.Write(c.out)
		c.out, c.failed = nil, net.ErrClosed
	}
	c.mu.Unlock()
	return c.prompted.Close()
}
