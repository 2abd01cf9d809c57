// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"encoding/json"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/ucx"
)

// A flight is a frame on its way to one receiver. It is made once and used for one frame after the other.
type flight struct {
	session *session
	done    func(error) // landed, made once
	begun   time.Time
	job     *job
	header  frameHeader
	text    []byte // of the header
	parts   [][]byte
	waits   atomic.Int32 // messages whose memory UCX still has
	failed  atomic.Bool
}

func newFlight(s *session) *flight {
	f := &flight{session: s, text: make([]byte, 0, frameHeaderSize)}
	f.done = f.landed
	return f
}

// start sends a frame, and its results before it. An error ends the session, now or when UCX tells it.
func (f *flight) start(j *job, m *ucx.Memory) {
	s, frame := f.session, j.frame
	f.job = j
	f.parts = s.wants.region.parts(f.parts[:0], frame.Format, frame.Bytes)
	f.fill(j)
	f.failed.Store(false)
	f.waits.Store(1)
	if len(frame.Results) > 0 {
		if text, err := json.Marshal(frame.Results); err == nil && len(text) <= maxResults {
			f.waits.Add(1)
			f.send(&ucx.Outgoing{ID: idResults, Header: f.text[:8], Data: [][]byte{text}, Protocol: ucx.Eager})
		}
	}
	f.send(&ucx.Outgoing{ID: idFrame, Header: f.text, Data: f.parts, Memory: m, Protocol: ucx.Rendezvous})
}

func (f *flight) send(m *ucx.Outgoing) {
	if err := f.session.link.Send(m, f.done); err != nil {
		f.landed(err)
	}
}

// fill lays the header out.
func (f *flight) fill(j *job) {
	frame, h := j.frame, &f.header
	h.sequence, h.times, h.flags = frame.Sequence, frame.Times, frame.Flags
	h.by, h.crc, h.size = crcNone, 0, 0
	for _, p := range f.parts {
		h.size += uint64(len(p))
	}
	switch whole := f.session.wants.region == (Region{}); {
	case whole && frame.CRC != 0:
		h.by, h.crc = crcFPGA, frame.CRC
	case !j.sink.checksum:
	case whole:
		h.by, h.crc = crcSender, j.checksum()
	default:
		h.by, h.crc = crcSender, checksum(f.parts)
	}
	h.sent = time.Now()
	f.text = h.append(f.text[:0])
}

// landed says that UCX has no use any more for one of the messages' memory.
func (f *flight) landed(err error) {
	if err != nil {
		f.failed.Store(true)
		f.session.failed(err)
	}
	if f.waits.Add(-1) > 0 {
		return
	}
	j := f.job
	f.job = nil
	j.release(f)
}

// put makes the flight free again. The hub's lock is held.
func (f *flight) put() {
	s := f.session
	if !f.failed.Load() {
		if s.bytes += f.header.size; s.state == over {
			s.sink.gone.bytes += f.header.size
		}
	}
	s.flying = slices.DeleteFunc(s.flying, func(x *flight) bool { return x == f })
	s.free = append(s.free, f)
}

// A job is a frame that is on its way to some receivers.
type job struct {
	sink    *Sink
	queue   *pipeline.Queue
	frame   *pipeline.Frame
	holders atomic.Int32
	crc     uint32 // of the whole frame
	summed  bool
}

// checksum is the CRC of the whole frame.
func (j *job) checksum() uint32 {
	if !j.summed {
		j.crc, j.summed = checksum([][]byte{j.frame.Bytes[:j.frame.Format.Size()]}), true
	}
	return j.crc
}

// release gives the frame back when nobody needs it any more. by is the flight that has ended with it; nil: none.
func (j *job) release(by *flight) {
	h, f, q := j.sink.hub, j.frame, j.queue
	last := j.holders.Add(-1) == 0
	if last {
		q.Done(f) // before end takes the job: then the books are closed
	}
	h.mu.Lock()
	if last {
		j.frame, j.queue, j.summed = nil, nil, false
		j.sink.jobs <- j // has room for all
	}
	if by != nil {
		by.put()
	}
	h.mu.Unlock()
}
