// SPDX-License-Identifier: Apache-2.0

package fpga

import "context"

// Registers is a window of 32-bit device registers: a memory-mapped BAR, or the model.
// Offsets are in bytes from the start of the window and multiples of 4. An access to a device that has gone
// reads all ones, as PCI Express does; it never fails.
type Registers interface {
	Read32(off uint32) uint32
	Write32(off uint32, v uint32)
}

// Interrupts delivers the device's interrupts.
type Interrupts interface {
	// Vectors is how many there are, numbered from 0 on: those of MSI-X or MSI, 1 for a legacy interrupt line, 0 when the
	// device has none that works.
	Vectors() int
	// Wait returns nil when the vector was raised at least once since the last Wait returned nil for it: raises
	// are counted like an eventfd, so none between two calls is lost and several may come as one. It returns
	// ctx.Err() when ctx ends first.
	Wait(ctx context.Context, vector int) error
}

// A BAR is one base address register's window.
type BAR struct {
	Index     int // 0 to 5
	Size      int // bytes
	Registers Registers
}

// A HaltOp is one access of a list that stops an engine without its driver: it depends on nothing that was read.
type HaltOp struct {
	BAR           int
	Offset, Value uint32
	Await         bool // wait until the register has the value, instead of writing it
}

// A Segment is a range of bus addresses (IOVAs) that are contiguous for the device.
type Segment struct {
	Addr uint64 // bus address
	Len  int    // bytes
}

// Memory is the CPU's view and the bus addresses of the same memory: Segments follow each other in Bytes.
type Memory struct {
	Bytes    []byte
	Segments []Segment
}

// Size is the sum of the segments' lengths in bytes.
func (m Memory) Size() int {
	n := 0
	for _, s := range m.Segments {
		n += s.Len
	}
	return n
}

// Slice returns the part of m from byte off on, n bytes long. It panics when the part lies outside m, as slicing does.
func (m Memory) Slice(off, n int) Memory {
	part := Memory{Bytes: m.Bytes[off : off+n : off+n]}
	for _, s := range m.Segments {
		if n == 0 {
			break
		}
		if off >= s.Len {
			off -= s.Len
			continue
		}
		take := min(s.Len-off, n)
		part.Segments = append(part.Segments, Segment{Addr: s.Addr + uint64(off), Len: take})
		off, n = 0, n-take
	}
	return part
}

// Direction is the way of a transfer, named as the XDMA IP names it.
type Direction int

const (
	H2C Direction = iota // host to card: the device reads host memory
	C2H                  // card to host: the device writes host memory
)

func (d Direction) String() string {
	if d == H2C {
		return "h2c"
	}
	return "c2h"
}
