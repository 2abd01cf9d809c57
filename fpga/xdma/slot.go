// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/tegracast/tegracast/fpga"
)

// slot is a frame's memory: descriptors of its pixels, and its trailer.
type slot struct {
	memory      Coherent // descriptors, trailer, write-backs
	chain       chain    // of the pixels; the first is the template of the head of whatever position the slot is at
	lengths     []uint32 // of the pixel descriptors, bytes
	writeBacks  []byte   // of the pixel descriptors (C2H)
	trailer     []byte   // nil: the frame has none
	trailerAddr uint64   // of what the tail takes
	placed      bool     // with the engine
}

// newSlot lays out the descriptors of a frame. A C2H stream descriptor's source field is the address of its write-back
// (PG195, C2H stream); an H2C one has no destination. With slice a descriptor ends at each multiple of it. Where a frame
// has no trailer, its last beat takes the place of one.
func (c *channel) newSlot(mem fpga.Memory, trailer, slice int) (*slot, error) {
	segments := pieces(sliced(mem.Segments, slice))
	if len(segments) == 0 {
		return nil, c.errorf(ErrMemory, "a slot has no bytes")
	}
	alignments := c.read(regAlignments)
	if alignments == gone {
		return nil, c.goneError("a slot was laid out")
	}
	granularity := int(alignments >> 8 & 0xff)
	for i, s := range segments {
		if granularity > 1 && s.Len%granularity != 0 {
			return nil, c.errorf(ErrMemory, "segment %d of a slot has %d bytes, the stream is %d wide", i, s.Len, granularity)
		}
	}
	var lastBeat uint64
	if trailer == 0 {
		var err error
		if segments, lastBeat, err = c.cutBeat(segments); err != nil {
			return nil, err
		}
	}
	at := roundUp(len(segments) * descriptorSize)
	back := at + roundUp(trailer) // pages of their own: no cache line is shared
	m, err := c.allocate("a slot's descriptors", back+len(segments)*writeBackSize)
	if err != nil {
		return nil, err
	}
	base := m.Segments[0].Addr
	s := &slot{
		memory: m, trailer: m.Bytes[at : at+trailer : at+trailer], trailerAddr: base + uint64(at),
		writeBacks: m.Bytes[back : back+len(segments)*writeBackSize],
	}
	if trailer == 0 {
		s.trailer, s.trailerAddr = nil, lastBeat
	}
	parts, end := make([]part, len(segments)), 0
	for k, seg := range segments {
		parts[k] = part{src: seg.Addr, n: seg.Len}
		if c.dir == fpga.C2H {
			parts[k] = part{src: base + uint64(back+k*writeBackSize), dst: seg.Addr, n: seg.Len}
		}
		end += seg.Len
		if (k+1)%pumpEvery == 0 || slice > 0 && end%slice == 0 {
			parts[k].control = descCompleted
		}
		s.lengths = append(s.lengths, uint32(seg.Len))
	}
	s.chain = writeChain(m.Bytes, base, parts)
	return s, nil
}

// cutBeat takes the last beat off a frame's segments and returns where it is.
func (c *channel) cutBeat(segments []fpga.Segment) (rest []fpga.Segment, beat uint64, err error) {
	width, k := c.dev.width, len(segments)-1
	last := &segments[k]
	if last.Len%width != 0 || k == 0 && last.Len == width {
		return nil, 0, c.errorf(ErrMemory, "a slot ends with %d bytes: a frame must be some beats of %d bytes, the stream's width", last.Len, width)
	}
	if last.Len == width {
		return segments[:k], last.Addr, nil
	}
	last.Len -= width
	return segments, last.Addr + uint64(last.Len), nil
}

// written reads a write-back: whether it is there, how many bytes came, and whether the packet ended with them.
func written(writeBack []byte) (length uint32, eop, ok bool) {
	head := atomic.LoadUint32((*uint32)(unsafe.Pointer(&writeBack[0])))
	return binary.LittleEndian.Uint32(writeBack[4:]), head&1 == 1, head>>16 == writeBackMagic
}

// filled checks the write-backs of all pixel descriptors: whether they have all come, and the first that does not show
// a full descriptor in the middle of a packet.
func (s *slot) filled() (all bool, wrong int) {
	for k, want := range s.lengths {
		length, eop, ok := written(s.writeBacks[k*writeBackSize:])
		if !ok {
			return false, -1
		}
		if eop || length != want {
			return true, k
		}
	}
	return true, -1
}

// add lays out one more slot.
func (f *feed) add(mem fpga.Memory, trailer, slice int) (int, error) {
	s, err := f.c.newSlot(mem, trailer, slice)
	if err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slots = append(f.slots, s)
	return len(f.slots) - 1, nil
}
