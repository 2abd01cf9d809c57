// SPDX-License-Identifier: Apache-2.0

package vfiousertest

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/fpga"
)

// Window is a function's BAR over the connection. Reads wait for their answers; writes are posted, as in QEMU.
type Window struct {
	C     *Client
	Index uint32 // of the region, which for a BAR is its number
}

// Read32 implements fpga.Registers.
func (w Window) Read32(off uint32) uint32 {
	r := w.C.Read(w.Index, uint64(off), 4)
	if len(r.Body) != 20 {
		return ^uint32(0)
	}
	return binary.LittleEndian.Uint32(r.Body[16:])
}

// Write32 implements fpga.Registers.
func (w Window) Write32(off, v uint32) {
	_ = w.C.Post(Write, Cat(uint64(off), w.Index, uint32(4), v)) // ignored by a function that is gone
}

// RAM is a machine's memory: a file that client and server share.
type RAM struct {
	FD    int
	Bytes []byte
	next  int     // offset from which on nothing was allocated yet
	free  []piece // a stack: the last one is allocated first
}

// piece is a part of the RAM with its bus addresses.
type piece struct {
	at, size, segment int
	base              uint64
}

// NewRAM creates size bytes of RAM, which are released at the test's end.
func (c *Client) NewRAM(size int) *RAM {
	c.t.Helper()
	fd, err := unix.MemfdCreate("ram", unix.MFD_CLOEXEC)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		c.t.Fatal(err)
	}
	r := &RAM{FD: fd}
	if r.Bytes, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = unix.Munmap(r.Bytes) })
	return r
}

// Free unmaps memory that Alloc has returned. The next Alloc with the same base, size and segment uses the same memory
// and bus addresses.
func (r *RAM) Free(c *Client, m fpga.Memory) {
	c.t.Helper()
	at, segment := len(r.Bytes)-cap(m.Bytes), m.Segments[0].Len
	for _, s := range m.Segments {
		pages := (s.Len + 4095) &^ 4095
		if e := c.Unmap(s.Addr, uint64(pages), 0); e.Flags != 1 {
			c.t.Fatalf("unmapping %#x: %+v", s.Addr, e)
		}
	}
	r.free = append(r.free, piece{at, len(m.Bytes), segment, m.Segments[0].Addr - uint64(2*at)})
}

// place returns the offset in the RAM for memory of a size: that of the most recently freed piece with the same base,
// size and segment, if there is one.
func (r *RAM) place(base uint64, size, segment int) (at int) {
	for i := len(r.free) - 1; i >= 0; i-- {
		if f := r.free[i]; f.size == size && f.segment == min(size, segment) && f.base == base {
			r.free = slices.Delete(r.free, i, i+1)
			return f.at
		}
	}
	at = r.next
	r.next = (at + size + 4095) &^ 4095
	return at
}

// Alloc allocates whole pages of the RAM and maps them at bus addresses from base on, which differ from the file's
// offsets, as with an IOMMU. There is a hole after each segment. Each segment but the last has segment bytes; segment
// must be a multiple of 4 KiB or at least size.
func (r *RAM) Alloc(c *Client, base uint64, size, segment int) fpga.Memory {
	c.t.Helper()
	at := r.place(base, size, segment)
	var m fpga.Memory
	m.Bytes = r.Bytes[at : at+size]
	for off := 0; off < size; off += segment {
		n := min(segment, size-off)
		pages := (n + 4095) &^ 4095
		addr := base + uint64(2*(at+off))
		if e := c.Map(addr, uint64(pages), uint64(at+off), 3, r.FD); e.Flags != 1 {
			c.t.Fatalf("mapping %#x: %+v", addr, e)
		}
		m.Segments = append(m.Segments, fpga.Segment{Addr: addr, Len: n})
	}
	return m
}

// Vectors are eventfds for interrupts. They implement fpga.Interrupts.
type Vectors struct {
	FDs []int

	mu sync.Mutex
}

// NewVectors creates n eventfds, which are closed at the test's end.
func (c *Client) NewVectors(n int) *Vectors {
	c.t.Helper()
	v := &Vectors{}
	for range n {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			c.t.Fatal(err)
		}
		v.FDs = append(v.FDs, fd)
	}
	c.t.Cleanup(func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		for _, fd := range v.FDs {
			unix.Close(fd)
		}
		v.FDs = nil
	})
	return v
}

// Assign assigns the eventfds to vectors of a kind (0 INTx, 1 MSI, 2 MSI-X), 16 per message.
func (v *Vectors) Assign(c *Client, kind uint32) {
	c.t.Helper()
	for at := 0; at < len(v.FDs); at += 16 {
		fds := v.FDs[at:min(at+16, len(v.FDs))]
		if r := c.Do(SetIRQs, Cat(uint32(20), uint32(1<<2|1<<5), kind, uint32(at), uint32(len(fds))), fds...); r.Flags != 1 {
			c.t.Fatalf("eventfds of kind %d from %d on: %+v", kind, at, r)
		}
	}
}

// Raised returns how often a vector was raised since the previous call or Wait, and resets the count. Coalesced
// interrupts count separately. It returns 0 if there is no such vector.
func (v *Vectors) Raised(vector int) uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	var b [8]byte
	if vector >= len(v.FDs) {
		return 0
	}
	if n, err := unix.Read(v.FDs[vector], b[:]); err != nil || n != 8 {
		return 0
	}
	return binary.LittleEndian.Uint64(b[:])
}

// Vectors implements fpga.Interrupts.
func (v *Vectors) Vectors() int { return len(v.FDs) }

// Wait implements fpga.Interrupts.
func (v *Vectors) Wait(ctx context.Context, vector int) error {
	if vector >= len(v.FDs) {
		return fmt.Errorf("vfiousertest: vector %d of %d", vector, len(v.FDs))
	}
	for v.Raised(vector) == 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Microsecond):
		}
	}
	return nil
}
