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
	stallLimit  = 10 * time.Second // for which a reader that takes nothing keeps its connection
	answerLimit = 10 * time.Second // for a reader to take an answer
)

// A Conn is a TCP connection on which packets of a stream stand between the messages of another protocol ("interleaved", RFC
// 2326 §10.12). Packets are offered to the socket and never waited for; other messages are written by Write, which waits.
type Conn struct {
	net.Conn
	raw syscall.RawConn

	mu   sync.Mutex // held while something is written; the sender does not wait for it
	rest []byte     // of a packet that the socket has taken in part: it goes first
	idle time.Time  // since when the socket has taken nothing, though there was something; zero: it takes

	waiting int         // bytes that were not sent when behind was asked last
	stalled atomic.Bool // closed for that

	call    func(fd uintptr) // sendmsg of message, made once
	query   func(fd uintptr) // how many bytes are not sent
	message unix.Msghdr
	n       int // result of call and query
	errno   unix.Errno
}

// Stalled says whether the connection was closed because its reader took nothing for stallLimit.
func (c *Conn) Stalled() bool { return c.stalled.Load() }

// NewConn makes a Conn of a connection that nobody writes to otherwise.
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

// Write writes a message of the other protocol behind the packet under way. It waits for room for at most answerLimit; the stream
// goes on without this reader meanwhile.
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
	if err != nil {
		_ = c.Conn.Close() // in the middle of a message
	}
	return n, err
}

// SetWriteDeadline does nothing: Write has its own.
func (c *Conn) SetWriteDeadline(time.Time) error { return nil }

// offer offers what count vectors say to the socket, behind the rest of the packet before. mu is held. The vectors are the kernel's
// structs; what they point to must stay where it is.
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

// send is sendmsg. An error other than EAGAIN is EPIPE: nothing can
// be sent any more.
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

// wait notes that the reader has taken nothing. One that takes nothing for too long loses its connection.
func (c *Conn) wait() {
	if c.idle.IsZero() {
		c.idle = time.Now()
	}
	if time.Since(c.idle) > stallLimit {
		c.stalled.Store(true)
		_ = c.Conn.Close() // whoever reads from it hears of that
	}
}

// behind is how many bytes wait to be sent; those of an answer that waits for room are not counted.
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

// tell writes an RTCP compound on a channel, if there is room for it.
func (c *Conn) tell(channel byte, b []byte) bool {
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
