// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/ucx"
)

// A StreamConfig describes a stream of a server.
type StreamConfig struct {
	Name string
	// Checksum says that the sender computes a CRC of each frame that has none. Frames of an FPGA's camera have that of the FPGA.
	Checksum bool
	// Receivers is how many may take the stream at a time; 0: 1. Holds says how many frames that takes.
	Receivers int
}

// A Sink sends the frames of one output to whoever takes its stream. It implements pipeline.Sink.
type Sink struct {
	hub           *hub
	name          string
	format        pipeline.Format
	checksum      bool
	receiversMost int
	register      func(slot []byte) (*ucx.Memory, error)

	jobs chan *job // those that are free
	due  []*flight

	known sync.Mutex          // held while receivers are found for a frame
	slots map[int]*ucx.Memory // that UCX knows, by Frame.Slot

	// The hub's lock guards these.
	receivers []*session
	gone      totals // of receivers that have gone
	ended     bool
}

// Holds is how many frames a stream for so many receivers holds: two for each, and the one that is looked at. Who is alone may have all.
func Holds(receivers int) int { return receivers*inFlight + 1 }

// totals are what receivers that have gone have got.
type totals struct {
	receivers, frames, lost, bytes uint64
}

func (t *totals) add(s *session) {
	t.receivers++
	t.frames += s.books.sent
	t.lost += s.books.lost
	t.bytes += s.bytes
}

// newSink makes a stream and adds it to the hub.
func newSink(h *hub, c StreamConfig, f pipeline.Format, register func([]byte) (*ucx.Memory, error)) (*Sink, error) {
	k := &Sink{
		hub: h, name: c.Name, format: f, checksum: c.Checksum, receiversMost: max(c.Receivers, 1), register: register, slots: map[int]*ucx.Memory{},
	}
	holds := Holds(k.receiversMost)
	k.jobs = make(chan *job, holds)
	for range holds {
		k.jobs <- &job{sink: k}
	}
	return k, h.add(k)
}

// Needs implements pipeline.Sink.
func (k *Sink) Needs() pipeline.SinkNeeds {
	return pipeline.SinkNeeds{Format: k.format, Holds: cap(k.jobs)}
}

// Run implements pipeline.Sink.
func (k *Sink) Run(ctx context.Context, q *pipeline.Queue) error {
	for {
		f, err := q.Next(ctx)
		if err != nil {
			return errors.Join(err, k.end())
		}
		k.send(q, f)
	}
}

// ErrStuck means that UCX has not given a frame back: its receiver does nothing, and has not broken the connection.
var ErrStuck = errors.New("ucx: a receiver that does nothing still has a frame")

// end ends all connections, and waits for the frames that are on their way.
func (k *Sink) end() error {
	k.hub.mu.Lock()
	k.ended = true
	list := append([]*session(nil), k.receivers...)
	k.hub.mu.Unlock()
	for _, s := range list {
		k.hub.drop(s, bye{CodeEnd, "the stream " + k.name + " ends"}, "here")
	}
	late := time.After(patience)
	for n := range cap(k.jobs) {
		select {
		case <-k.jobs:
		case <-late:
			return fmt.Errorf("%w: %d of stream %s", ErrStuck, cap(k.jobs)-n, k.name)
		}
	}
	return nil
}

// send sends a frame to those who take it now.
func (k *Sink) send(q *pipeline.Queue, f *pipeline.Frame) {
	m, err := k.claim(f)
	switch {
	case err != nil:
		q.Fail(f, pipeline.DropSink, err)
		return
	case len(k.due) == 0:
		q.Done(f)
		return
	}
	j := <-k.jobs // ends: claim has seen it, and nobody else takes one
	j.queue, j.frame = q, f
	j.holders.Store(int32(len(k.due) + 1))
	for _, x := range k.due {
		x.start(j, m)
	}
	j.release(nil)
}

// claim finds who takes a frame now, and its memory. While receivers that have gone still hold all that the stream may hold, nobody
// does: all lose the frame.
func (k *Sink) claim(f *pipeline.Frame) (*ucx.Memory, error) {
	k.known.Lock()
	defer k.known.Unlock()
	k.due = k.due[:0]
	m, err := k.slot(f)
	if err != nil {
		return nil, err
	}
	now, spare := time.Now(), len(k.jobs)
	k.hub.mu.Lock()
	defer k.hub.mu.Unlock()
	for _, s := range k.receivers {
		if x := s.claim(now, spare); x != nil {
			k.due = append(k.due, x)
		}
	}
	return m, nil
}

// slot is the memory of a frame, which UCX gets to know when it is seen for the first time.
func (k *Sink) slot(f *pipeline.Frame) (*ucx.Memory, error) {
	if m, known := k.slots[f.Slot()]; known {
		return m, nil
	}
	m, err := k.register(f.Bytes)
	if err != nil {
		return nil, fmt.Errorf("ucx: the slot of frame %d cannot be registered: %w", f.Sequence, err)
	}
	k.slots[f.Slot()] = m
	return m, nil
}

// Close takes the stream off its server. Run has ended, or never ran.
func (k *Sink) Close() error {
	k.hub.remove(k)
	return k.forget()
}

// forget has UCX forget all slots. Nobody takes frames.
func (k *Sink) forget() error {
	k.known.Lock()
	defer k.known.Unlock()
	var errs []error
	for i, m := range k.slots {
		errs = append(errs, unmap(m))
		delete(k.slots, i)
	}
	return errors.Join(errs...)
}

// Stats are the books of a stream.
type Stats struct {
	Receivers []ReceiverStats `json:"receivers"` // that take it now
	Gone      uint64          `json:"gone"`      // receivers that have taken it
	Frames    uint64          `json:"frames"`    // sent to all receivers, those that have gone, too
	Lost      uint64          `json:"lost"`      // that receivers wanted and had no room for
	Bytes     uint64          `json:"bytes"`
}

// ReceiverStats are the books of one receiver.
type ReceiverStats struct {
	Address string `json:"address"`
	Every   uint32 `json:"every"`
	Region  string `json:"region"`
	Credits uint32 `json:"credits"`
	Offered uint64 `json:"offered"` // frames of the stream since it takes it
	Frames  uint64 `json:"frames"`
	Lost    uint64 `json:"lost"`
	Bytes   uint64 `json:"bytes"`
}

func (r ReceiverStats) String() string {
	return fmt.Sprintf("%s: %d frames, %d bytes, lost %d for want of credits; every %d, region %s", r.Address, r.Frames, r.Bytes, r.Lost, r.Every, r.Region)
}

// Stats reads the books.
func (k *Sink) Stats() Stats {
	k.hub.mu.Lock()
	defer k.hub.mu.Unlock()
	st := Stats{Receivers: []ReceiverStats{}, Gone: k.gone.receivers, Frames: k.gone.frames, Lost: k.gone.lost, Bytes: k.gone.bytes}
	for _, s := range k.receivers {
		st.Frames, st.Lost, st.Bytes = st.Frames+s.books.sent, st.Lost+s.books.lost, st.Bytes+s.bytes
		st.Receivers = append(st.Receivers, ReceiverStats{
			Address: s.from, Every: s.wants.every, Region: s.wants.region.String(), Credits: s.credits,
			Offered: s.books.offered, Frames: s.books.sent, Lost: s.books.lost, Bytes: s.bytes,
		})
	}
	return st
}
