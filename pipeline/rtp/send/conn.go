// SPDX-License-Identifier: Apache-2.0

package send

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	stallLimit  = 10 * time.Second // a reader that accepts no data for this long loses its connection
	answerLimit = 10 * time.Second // time limit for writing an answer
)

// A Conn is a TCP connection that carries packets of a stream between the messages of another protocol ("interleaved",
// RFC 2326 §10.12). Packets are sent only as far as the socket accepts them without blocking; other messages are
// written by Write, which blocks.
type Conn struct {
	net.Conn
	raw syscall.RawConn

	mu   sync.Mutex // held while something is written; the sender does not wait for it
	rest []byte     // a message, or the rest of a packet that the socket has accepted in part; sent before anything else
	idle time.Time  // since when the socket has accepted nothing although data was waiting; zero while it accepts data

	waiting int         // unsent bytes at the last call of behind
	stalled atomic.Bool // the connection was closed because it was idle for stallLimit

	call    func(fd uintptr) // sendmsg of message; a field so that it is allocated only once
	query   func(fd uintptr) // gets the number of unsent bytes
	message unix.Msghdr
	n       int // result of the latest call or query
	errno   unix.Errno
}

// Stalled reports whether the connection was closed because its reader accepted no data for stallLimit.
func (c *Conn) Stalled() bool { return c.stalled.Load() }

// NewConn returns a Conn for a connection to which nothing else writes.
func NewConn(c *net.TCPConn) (*Conn, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	x := &Conn{Conn: c, raw: raw}
	x.call = func(fd uintptr) {
		n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&x.message)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		x.n, x.errno = int(n), errno
	}
	x.query = func(fd uintptr) { x.n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQNSD) }
	return x, nil
}

// Write writes a message of the other protocol after what is left of the one before it. It waits for room for at most
// answerLimit; meanwhile the stream skips this reader. If it fails, it closes the connection.
func (c *Conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.Conn.SetWriteDeadline(time.Now().Add(answerLimit))
	if err == nil && len(c.rest) > 0 {
		_, err = c.Conn.Write(c.rest)
		c.rest = c.rest[:0]
	}
	n := 0
	if err == nil {
		n, err = c.Conn.Write(b)
	}
	if c.idle = (time.Time{}); err != nil {
		_ = c.Conn.Close() // the stream may have been cut inside a message
	}
	return n, err
}

// queue puts a message before the packets that follow, unless something is being written, and reports whether it did.
func (c *Conn) queue(b []byte) bool {
	if !c.mu.TryLock() {
		return false
	}
	defer c.mu.Unlock()
	c.rest = append(c.rest, b...)
	return true
}

// SetWriteDeadline does nothing, because Write sets its own deadline.
func (c *Conn) SetWriteDeadline(time.Time) error { return nil }

// offer sends the data of count vectors, after the rest of the previous packet, as far as the socket accepts it, and
// returns how many bytes of the data it accepted. The caller must hold mu. The vectors are kernel structs; the memory
// they point to must not move.
func (c *Conn) offer(vectors unsafe.Pointer, count int) (n int, errno unix.Errno) {
	if len(c.rest) > 0 {
		v := unix.Iovec{Base: &c.rest[0], Len: uint64(len(c.rest))}
		taken, errno := c.send(unsafe.Pointer(&v), 1)
		if errno != 0 {
			return 0, errno
		}
		if c.rest = c.rest[:copy(c.rest, c.rest[taken:])]; len(c.rest) > 0 {
			return 0, unix.EAGAIN
		}
	}
	return c.send(vectors, count)
}

// send calls sendmsg. Errors other than EAGAIN are returned as EPIPE: nothing can be sent any more.
func (c *Conn) send(vectors unsafe.Pointer, count int) (n int, errno unix.Errno) {
	c.message = unix.Msghdr{Iov: (*unix.Iovec)(vectors), Iovlen: uint64(count)}
	c.n, c.errno = 0, 0
	if err := c.raw.Control(c.call); err != nil {
		return 0, unix.EPIPE
	}
	switch c.errno {
	case 0:
		c.idle = time.Time{}
		return c.n, 0
	case unix.EAGAIN:
		c.wait()
		return 0, unix.EAGAIN
	}
	return 0, unix.EPIPE
}

// wait records that the reader has accepted no data, and closes the connection if this has lasted too long.
func (c *Conn) wait() {
	if c.idle.IsZero() {
		c.idle = time.Now()
	}
	if time.Since(c.idle) > stallLimit {
		c.stalled.Store(true)
		_ = c.Conn.Close() // the goroutine that reads from it gets an error
	}
}

// behind returns the number of unsent bytes, or 0 while a Write is in progress or if the connection is closed. It calls
// wait if there are unsent bytes and no fewer than at the previous call.
func (c *Conn) behind() int {
	if !c.mu.TryLock() {
		return 0
	}
	defer c.mu.Unlock()
	c.n = 0
	if c.raw.Control(c.query) != nil {
		return 0
	}
	switch n := c.n + len(c.rest); {
	case n < c.waiting || n == 0:
		c.idle = time.Time{}
	default:
		c.wait()
	}
	c.waiting = c.n + len(c.rest)
	return c.waiting
}

// writeRTCP writes an RTCP compound on a channel if there is room for it, and reports whether it did.
func (c *Conn) writeRTCP(channel byte, b []byte) bool {
	if !c.mu.TryLock() {
		return false
	}
	defer c.mu.Unlock()
	message := append([]byte{'$', channel, byte(len(b) >> 8), byte(len(b))}, b...)
	v := unix.Iovec{Base: &message[0], Len: uint64(len(message))}
	n, errno := c.offer(unsafe.Pointer(&v), 1)
	if errno != 0 {
		return false
	}
	c.rest = append(c.rest, message[n:]...)
	return true
}
