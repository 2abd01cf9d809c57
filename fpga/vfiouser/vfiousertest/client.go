// SPDX-License-Identifier: Apache-2.0

package vfiousertest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience is the time limit for an answer.
const patience = time.Minute

// Reply is the answer to a command: the fields of its header, and its body.
type Reply struct {
	ID, Command        uint16
	Size, Flags, Errno uint32
	Body               []byte
}

// Client is a connection. Its commands may be sent concurrently.
type Client struct {
	t    testing.TB
	conn *net.UnixConn

	mu      sync.Mutex
	id      uint16
	waiting map[uint16]chan Reply
	asked   []uint64 // addresses of the server's DMA_READs
	ended   error
	done    chan struct{} // closed when the connection has ended
}

// Dial connects to a server's socket. The connection is closed at the test's end.
func Dial(t testing.TB, path string) *Client {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	c := &Client{t: t, conn: conn, waiting: map[uint16]chan Reply{}, done: make(chan struct{})}
	go c.receive()
	t.Cleanup(c.Close)
	return c
}

// Close ends the connection.
func (c *Client) Close() {
	c.conn.Close()
	<-c.done
}

// Ended waits until the connection has ended. The test fails if that takes more than a minute.
func (c *Client) Ended() {
	c.t.Helper()
	select {
	case <-c.done:
	case <-time.After(patience):
		c.t.Fatal("the server has not ended the connection")
	}
}

// Asked returns the addresses that the server has requested by DMA_READ. All were refused.
func (c *Client) Asked() []uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]uint64(nil), c.asked...)
}

// Cat concatenates integers, in little endian with their own sizes, byte slices and strings.
func Cat(parts ...any) (b []byte) {
	for _, p := range parts {
		switch v := p.(type) {
		case uint16:
			b = append(b, byte(v), byte(v>>8))
		case uint32:
			b = append(b, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
		case uint64:
			b = append(b, byte(v), byte(v>>8), byte(v>>16), byte(v>>24), byte(v>>32), byte(v>>40), byte(v>>48), byte(v>>56))
		case []byte:
			b = append(b, v...)
		case string:
			b = append(b, v...)
		default:
			panic(fmt.Sprintf("vfiousertest: %T", p))
		}
	}
	return b
}

// Frame returns a message: id, command, total size, flags, no error, body.
func Frame(id, command uint16, flags uint32, body []byte) []byte {
	return Cat(id, command, uint32(16+len(body)), flags, uint32(0), body)
}

// Send sends b unchanged, together with the file descriptors fds.
func (c *Client) Send(b []byte, fds ...int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	n, _, err := c.conn.WriteMsgUnix(b, oob, nil)
	if err == nil && n < len(b) {
		_, err = c.conn.Write(b[n:])
	}
	return err
}

// Do sends a command and waits for its answer.
func (c *Client) Do(command uint16, body []byte, fds ...int) Reply {
	c.t.Helper()
	return c.await(command, 0, body, fds...)
}

// Post sends a command with the flag that suppresses the answer.
func (c *Client) Post(command uint16, body []byte) error {
	c.mu.Lock()
	c.id++
	b := Frame(c.id, command, 1<<4, body)
	defer c.mu.Unlock()
	return c.Send(b)
}

func (c *Client) await(command uint16, flags uint32, body []byte, fds ...int) Reply {
	c.t.Helper()
	answer := make(chan Reply, 1)
	c.mu.Lock()
	c.id++
	id := c.id
	c.waiting[id] = answer
	err := c.Send(Frame(id, command, flags, body), fds...)
	c.mu.Unlock()
	if err != nil {
		c.t.Fatalf("command %d: %v", command, err)
	}
	select {
	case r := <-answer:
		if r.Command != command || r.Flags&0xf != 1 || r.Flags&(1<<4) != 0 || int(r.Size) != 16+len(r.Body) ||
			r.Flags>>5&1 != 0 && len(r.Body) > 0 || r.Flags>>5&1 == 0 && r.Errno != 0 {
			c.t.Errorf("command %d is answered by %+v", command, r)
		}
		return r
	case <-c.done:
		c.t.Fatalf("command %d: the connection ended: %v", command, c.ended)
	case <-time.After(patience):
		c.t.Fatalf("command %d is not answered", command)
	}
	return Reply{}
}

func (c *Client) receive() {
	defer close(c.done)
	for {
		var head [16]byte
		if _, err := io.ReadFull(c.conn, head[:]); err != nil {
			c.ended = err
			return
		}
		le := binary.LittleEndian
		r := Reply{le.Uint16(head[0:]), le.Uint16(head[2:]), le.Uint32(head[4:]), le.Uint32(head[8:]), le.Uint32(head[12:]), nil}
		if r.Size < 16 || r.Size > 2<<20 {
			c.ended = fmt.Errorf("a message of %d bytes", r.Size)
			return
		}
		r.Body = make([]byte, r.Size-16)
		if _, err := io.ReadFull(c.conn, r.Body); err != nil {
			c.ended = err
			return
		}
		if err := c.dispatch(r); err != nil {
			c.ended = err
			return
		}
	}
}

func (c *Client) dispatch(r Reply) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Flags&0xf == 0 { // a command of the server: QEMU answers with an error when its IOMMU refuses
		if r.Command != 11 || len(r.Body) != 16 {
			return fmt.Errorf("command %d of the server's, %d bytes", r.Command, len(r.Body))
		}
		c.asked = append(c.asked, binary.LittleEndian.Uint64(r.Body))
		const efault = 14
		return c.Send(Cat(r.ID, r.Command, uint32(16), uint32(1|1<<5), uint32(efault)))
	}
	answer, ok := c.waiting[r.ID]
	if !ok {
		return errors.New("a reply to nothing")
	}
	delete(c.waiting, r.ID)
	answer <- r
	return nil
}

// The commands of the specification that clients send.
const (
	Version    = 1
	DMAMap     = 2
	DMAUnmap   = 3
	Info       = 4
	RegionInfo = 5
	IRQInfo    = 7
	SetIRQs    = 8
	Read       = 9
	Write      = 10
	Reset      = 13
)

// Greet negotiates the version like QEMU 11.1.
func (c *Client) Greet() Reply {
	c.t.Helper()
	return c.Do(Version, Cat(uint16(0), uint16(0), `{"capabilities":{"max_msg_fds":16,"max_data_xfer_size":1048576,`+
		`"pgsizes":4096,"max_dma_maps":65535,"write_multiple":true}}`+"\x00"))
}

// Map maps a range of a file; fd -1 means none. Flags are 1 for reading, 2 for writing.
func (c *Client) Map(addr, size, offset uint64, flags uint32, fd int) Reply {
	c.t.Helper()
	body := Cat(uint32(32), flags, offset, addr, size)
	if fd < 0 {
		return c.Do(DMAMap, body)
	}
	return c.Do(DMAMap, body, fd)
}

// Unmap unmaps a range. Flag 2 unmaps everything.
func (c *Client) Unmap(addr, size uint64, flags uint32) Reply {
	c.t.Helper()
	return c.Do(DMAUnmap, Cat(uint32(24), flags, addr, size))
}

// Read reads from a region.
func (c *Client) Read(region uint32, off uint64, n uint32) Reply {
	c.t.Helper()
	return c.Do(Read, Cat(off, region, n))
}

// Write writes to a region and waits for the answer.
func (c *Client) Write(region uint32, off uint64, data []byte) Reply {
	c.t.Helper()
	return c.Do(Write, Cat(off, region, uint32(len(data)), data))
}

// Flagged sends a command with additional flags in its header, and waits for its answer.
func (c *Client) Flagged(command uint16, flags uint32, body []byte) Reply {
	c.t.Helper()
	return c.await(command, flags, body)
}

// Hang closes the sending side and continues to receive.
func (c *Client) Hang() { _ = c.conn.CloseWrite() }
