// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/tegracast/tegracast/fpga"
)

// slot is a frame's memory: the descriptors of its pixels, and its trailer.
type slot struct {
	memory      Coherent // descriptors, trailer, write-backs
	chain       chain    // of the pixels; the first one is the template for the head of any position where the slot is placed
	lengths     []uint32 // of the pixel descriptors, in bytes
	writeBacks  []byte   // of the pixel descriptors (C2H)
	trailer     []byte   // nil if the frame has none
	trailerAddr uint64   // of what the tail transfers
	placed      bool     // owned by the engine
}

// newSlot makes the descriptors for a frame of the given number of bytes. The source field of a C2H stream descriptor
// holds the address of its write-back (PG195, C2H stream); an H2C one has no destination. If slice is not 0, a
// descriptor ends at each multiple of it. If a frame has no trailer, its last bytes take the place of one.
func (c *channel) newSlot(mem fpga.Memory, frame, trailer, slice int) (*slot, error) {
	segments, end, err := mem.Segments, uint64(0), error(nil)
	if trailer == 0 {
		if segments, end, err = c.cutTail(segments, frame); err != nil {
			return nil, err
		}
	}
	if segments, err = c.checkLengths(pieces(sliced(segments, slice))); err != nil {
		return nil, err
	}
	at := roundUp(len(segments) * descriptorSize)
	back := at + roundUp(trailer) // separate pages, so that they share no cache line
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
		s.trailer, s.trailerAddr = nil, end
	}
	parts, done := make([]part, len(segments)), 0
	for k, seg := range segments {
		parts[k] = part{src: seg.Addr, n: seg.Len}
		if c.dir == fpga.C2H {
			parts[k] = part{src: base + uint64(back+k*writeBackSize), dst: seg.Addr, n: seg.Len}
		}
		done += seg.Len
		if (k+1)%pumpEvery == 0 || slice > 0 && done%slice == 0 {
			parts[k].control = descCompleted
		}
		s.lengths = append(s.lengths, uint32(seg.Len))
	}
	s.chain = writeChain(m.Bytes, base, parts)
	return s, nil
}

// checkLengths checks the lengths of a slot's pixel descriptors, which do not end the packet: they must be multiples of
// what the channel reports, but of at least 64 bytes for a C2H stream.
func (c *channel) checkLengths(segments []fpga.Segment) ([]fpga.Segment, error) {
	if len(segments) == 0 {
		return nil, c.errorf(ErrMemory, "a slot has no bytes")
	}
	alignments := c.read(regAlignments)
	if alignments == gone {
		return nil, c.goneError("a slot was laid out")
	}
	granularity := max(1, int(alignments>>8&0xff))
	if c.dir == fpga.C2H {
		granularity = max(granularity, c2hGranularity)
	}
	for i, s := range segments {
		if s.Len%granularity != 0 {
			return nil, c.errorf(ErrMemory, "segment %d of a slot has %d bytes: each descriptor must be a multiple of %d bytes (PG195, Length Granularity)",
				i, s.Len, granularity)
		}
	}
	return segments, nil
}

// tailBytes returns how many bytes of a frame without trailer its tail transfers.
func tailBytes(frame int) int {
	if n := frame % c2hGranularity; n != 0 {
		return n
	}
	return c2hGranularity
}

// cutTail removes a frame's last bytes from the segments, and returns the address where the tail puts them. The memory
// there must have room for a whole descriptor, although the end of the packet may close it early.
func (c *channel) cutTail(segments []fpga.Segment, frame int) (rest []fpga.Segment, addr uint64, err error) {
	left := frame - tailBytes(frame)
	if frame%c.dev.width != 0 || left <= 0 {
		return nil, 0, c.errorf(ErrMemory, "a frame of %d bytes must be more than %d, and a multiple of %d, the stream's width",
			frame, c2hGranularity, c.dev.width)
	}
	for i, s := range segments {
		if s.Len <= left {
			left -= s.Len
			continue
		}
		if s.Len-left < c2hGranularity {
			break
		}
		rest = segments[:i:i]
		if left > 0 {
			rest = append(rest, fpga.Segment{Addr: s.Addr, Len: left})
		}
		return rest, s.Addr + uint64(left), nil
	}
	return nil, 0, c.errorf(ErrMemory, "a frame of %d bytes ends with a descriptor of %d (PG195, Length Granularity): the slot has no room for it",
		frame, c2hGranularity)
}

// written parses a write-back: how many bytes arrived, and whether the packet ended with them. ok reports whether the
// write-back has been written.
func written(writeBack []byte) (length uint32, eop, ok bool) {
	head := atomic.LoadUint32((*uint32)(unsafe.Pointer(&writeBack[0])))
	return binary.LittleEndian.Uint32(writeBack[4:]), head&1 == 1, head>>16 == writeBackMagic
}

// filled checks the write-backs of the pixel descriptors in their order. It returns false if one has not arrived. wrong
// is the index of the first one that does not show a full descriptor in the middle of a packet, after which filled
// checks no more, or -1.
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

func (f *feed) addSlot(mem fpga.Memory, frame, trailer, slice int) (int, error) {
	s, err := f.c.newSlot(mem, frame, trailer, slice)
	if err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slots = append(f.slots, s)
	return len(f.slots) - 1, nil
}
