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

// A flight is a frame on its way to one receiver. It is reused for one frame after another.
type flight struct {
	session *session
	done    func(error) // the method landed, bound once
	begun   time.Time
	job     *job
	header  frameHeader
	text    []byte // encoded header
	parts   [][]byte
	waits   atomic.Int32 // number of the frame's messages whose memory UCX still uses
	failed  atomic.Bool
}

func newFlight(s *session) *flight {
	f := &flight{session: s, text: make([]byte, 0, frameHeaderSize)}
	f.done = f.landed
	return f
}

// start sends a frame, preceded by its results, if any, unless they are longer than maxResults. An error ends the
// session, now or when UCX reports it.
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

// fill fills in and encodes the header.
func (f *flight) fill(j *job) {
	frame, h := j.frame, &f.header
	h.sequence, h.group, h.times, h.flags = frame.Sequence, frame.Group, frame.Times.Absolute(), frame.Flags
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
	f.text = h.append(f.text[:0], f.session.version)
}

// landed is called when UCX no longer needs the memory of one of the messages, or could not send it.
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

// release counts the bytes of a flight that has not failed, and makes the flight available again. The hub's lock must
// be held.
func (f *flight) release() {
	s := f.session
	if !f.failed.Load() {
		if s.bytes += f.header.size; s.state == over {
			s.sink.gone.bytes += f.header.size
		}
	}
	s.flying = slices.DeleteFunc(s.flying, func(x *flight) bool { return x == f })
	s.free = append(s.free, f)
}

// A job is a frame that is on its way to one or more receivers.
type job struct {
	sink    *Sink
	queue   *pipeline.Queue
	frame   *pipeline.Frame
	holders atomic.Int32
	crc     uint32 // of the whole frame
	summed  bool
}

// checksum returns the CRC of the whole frame.
func (j *job) checksum() uint32 {
	if !j.summed {
		j.crc, j.summed = checksum([][]byte{j.frame.Bytes[:j.frame.Format.Size()]}), true
	}
	return j.crc
}

// release drops one reference to the frame, and returns the frame to its queue when nobody needs it any more. by is the
// flight that has ended, or nil.
func (j *job) release(by *flight) {
	h, f, q := j.sink.hub, j.frame, j.queue
	last := j.holders.Add(-1) == 0
	if last {
		q.Done(f) // before end can take the job, so that the frame has been counted by then
	}
	h.mu.Lock()
	if last {
		j.frame, j.queue, j.summed = nil, nil, false
		j.sink.jobs <- j // has room for all
	}
	if by != nil {
		by.release()
	}
	h.mu.Unlock()
}
