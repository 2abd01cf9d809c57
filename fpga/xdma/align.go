// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"encoding/binary"
	"sync/atomic"
	"time"
	"unsafe"
)

// Layout of the memory for scrap.
const (
	scrapBytes = 64 << 10           // size of the data
	scrapBack  = descriptorPage / 2 // offset of the write-back
	scrapData  = descriptorPage     // offset of the data
)

// A scrap receives what a bare stream sends before the first pixel of a frame. The design does not know when the
// channel is started, so the first data may come from the middle of a packet.
//
// A scrap has a single descriptor that points to itself, for which the engine never has more than one credit. When its
// write-back shows the end of a packet, the next data starts with a frame's first pixel. The descriptor, which is not
// fetched before the next credit, then becomes a copy of the head of position 0.
type scrap struct {
	memory Coherent
	wanted bool   // no frame is received yet, see aligning
	found  bool   // the first pixel of a frame comes next
	count  uint32 // descriptors requested since the start
}

func (c *channel) newScrap() (*scrap, error) {
	m, err := c.allocate("data before the first frame", scrapData+scrapBytes)
	if err != nil {
		return nil, err
	}
	return &scrap{memory: m}, nil
}

func (s *scrap) addr() uint64      { return s.memory.Segments[0].Addr }
func (s *scrap) writeBack() []byte { return s.memory.Bytes[scrapBack : scrapBack+writeBackSize] }

func (s *scrap) reset() {
	s.wanted, s.found, s.count = true, false, 1
	clear(s.writeBack())
	writeChain(s.memory.Bytes, s.addr(), []part{{src: s.addr() + scrapBack, dst: s.addr() + scrapData, n: scrapBytes, control: descCompleted}}).
		link(0, s.addr(), 0)
}

// aligning reports whether frames are not received yet: either the first pixel of a frame has not been found, or no
// frame has been placed since. Until then, placed frames get no credits.
func (f *feed) aligning() bool { return f.scrap != nil && f.scrap.wanted }

// align serves the channel while aligning returns true.
func (r *Ring) align(why reason) error {
	s := r.scrap
	if s.found {
		return nil // no frame has been placed that could take it
	}
	_, end, ok := written(s.writeBack())
	if !ok {
		if why == byNothing && r.late.IsZero() {
			return nil
		}
		lost, err := r.overdue(s.count)
		if lost {
			err = r.c.errorf(ErrLost, "data before the first frame has come, its write-back has not within %v", r.lateBound())
		}
		return err
	}
	if done, err := r.done(s.count); !done {
		r.stats.Doubted++
		return err
	}
	r.late = time.Time{}
	if s.found = end; !end {
		clear(s.writeBack())
		s.count++
		r.allowed++
	}
	return r.pump()
}

// alignFrame makes the engine continue at position 0 if the first pixel of a frame comes next and a frame has been
// placed.
func (f *feed) alignFrame() {
	if !f.aligning() || !f.scrap.found || len(f.frames) == 0 {
		return
	}
	f.scrap.wanted = false
	d, head := f.scrap.memory.Bytes, f.descriptor(0)
	copy(d[4:descriptorSize], head[4:])
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&d[0])), binary.LittleEndian.Uint32(head))
	f.base += f.reached
	f.granted, f.reached, f.allowed = 0, 0, int(f.end)
}
