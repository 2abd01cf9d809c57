// SPDX-License-Identifier: Apache-2.0

package fpga

import "context"

// Registers is a window of 32-bit device registers: a memory-mapped BAR, or the model. Offsets are in bytes from the
// start of the window and must be multiples of 4. Reads from a device that has gone return all ones, as on PCI Express;
// an access never fails.
type Registers interface {
	Read32(off uint32) uint32
	Write32(off uint32, v uint32)
}

// Interrupts delivers the device's interrupts.
type Interrupts interface {
	// Vectors returns the number of vectors, which are numbered from 0: those of MSI-X or MSI, 1 for a legacy interrupt
	// line, or 0 if the device has no working interrupt.
	Vectors() int
	// Wait returns nil once the vector has been raised at least once since Wait last returned nil for it. Raises are
	// counted as by an eventfd, so none between two calls is lost, and several may be reported as one. Wait returns
	// ctx.Err() if ctx ends first, or another error if it cannot wait for the vector.
	Wait(ctx context.Context, vector int) error
}

// A BAR is the window of one base address register.
type BAR struct {
	Index     int // 0 to 5
	Size      int // bytes
	Registers Registers
}

// A HaltOp is one access in a list that stops an engine without its driver. It does not depend on anything read before.
type HaltOp struct {
	BAR           int    // BAR.Index
	Offset, Value uint32 // Offset in bytes
	Await         bool   // wait until the register reads as Value, instead of writing it
}

// A Segment is a range of bus addresses (IOVAs) that is contiguous for the device.
type Segment struct {
	Addr uint64 // bus address
	Len  int    // bytes
}

// Memory describes the same memory as seen by the CPU and by the device: Bytes consists of the Segments in order.
type Memory struct {
	Bytes    []byte
	Segments []Segment
}

// Size returns the total length of the segments in bytes.
func (m Memory) Size() int {
	n := 0
	for _, s := range m.Segments {
		n += s.Len
	}
	return n
}

// Slice returns the part of m that starts at byte off and is n bytes long. Like slicing, it panics if the part lies
// outside m.
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

// Direction is the direction of a transfer, named as in the XDMA IP.
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
