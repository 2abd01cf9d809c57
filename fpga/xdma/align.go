// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"encoding/binary"
	"sync/atomic"
	"time"
	"unsafe"
)

// Of the memory for scrap.
const (
	scrapBytes = 64 << 10
	scrapBack  = descriptorPage / 2 // its write-back
	scrapData  = descriptorPage
)

// A scrap takes what a bare stream sends before the first pixel of a frame. The design behind it does not know when the
// channel is started, so the first data may come from the middle of a packet.
//
// It is one descriptor that continues at itself, and the engine has never more than one credit for it. When its
// write-back shows the end of a packet, the next data is a frame's first pixel, and the descriptor, which nobody fetches
// before the next credit, becomes a copy of the head of position 0.
type scrap struct {
	memory Coherent
	wanted bool   // the first pixel of a frame has not been found
	found  bool   // it comes next
	count  uint32 // descriptors asked for since the start
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

// reset begins a search.
func (s *scrap) reset() {
	s.wanted, s.found, s.count = true, false, 1
	clear(s.writeBack())
	writeChain(s.memory.Bytes, s.addr(), []part{{src: s.addr() + scrapBack, dst: s.addr() + scrapData, n: scrapBytes, control: descCompleted}}).
		link(0, s.addr(), 0)
}

// aligning says that the frames that were placed do not get credits yet.
func (f *feed) aligning() bool { return f.scrap != nil && f.scrap.wanted }

// align serves the channel as long as the first pixel of a frame is wanted.
func (r *Ring) align(why reason) error {
	s := r.scrap
	if s.found {
		return nil // there is no frame that it could be put into
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

// begin lets the engine go on with position 0 when the first pixel of a frame comes next.
func (f *feed) begin() {
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
