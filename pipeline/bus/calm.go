// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// mostOut is the number of buffered bytes at which they are written out.
const mostOut = 256 << 10

// plainly opens a TCP connection.
func plainly(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// A prompted connection is, after it has settled, read only when Run prompts it, which Run does in each of its rounds.
// Most of the cost of a message is system calls and waking the goroutines that make them, so acknowledgements are read
// in batches.
type prompted struct {
	net.Conn
	settled atomic.Bool
	prompt  chan struct{}
	more    bool // perhaps the reader has not read everything that has arrived
}

func newPrompted(c net.Conn) prompted { return prompted{Conn: c, prompt: make(chan struct{}, 1)} }

// next lets the reader read what has arrived. If nothing has, the reader gets it when it arrives.
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

// A calm connection is a prompted one that, after it has settled, also buffers what is written to it, until Run flushes
// the buffer in its rounds or the buffer has mostOut bytes.
type calm struct {
	prompted

	mu     sync.Mutex
	out    []byte
	failed error
}

// Write implements net.Conn. An error of a delayed write is returned by the next call.
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
	_ = c.Conn.SetWriteDeadline(time.Now().Add(writeTime)) // on a closed connection the write below fails
	_, c.failed = c.Conn.Write(c.out)
	c.out = c.out[:0]
}

// SetWriteDeadline implements net.Conn and does nothing: leave sets its own deadline.
func (c *calm) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline implements net.Conn.
func (c *calm) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// Close implements net.Conn. It first tries to write out what is buffered, for at most 2 ms.
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
