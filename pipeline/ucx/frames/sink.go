// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/ucx"
)

// A StreamConfig configures a stream of a server.
type StreamConfig struct {
	Name string
	// Checksum makes the sender compute a CRC for frames that have none. Frames of an FPGA camera carry the CRC
	// computed by the FPGA.
	Checksum bool
	// Receivers is the maximum number of receivers at a time; 0: 1. Holds returns how many frames that requires.
	Receivers int
	// Allow lists the addresses that may receive the stream; none: all. Frames are neither encrypted nor authenticated
	// (docs/ucx.md).
	Allow []netip.Prefix
}

// A Sink sends the frames of one output to all receivers of its stream. It implements pipeline.Sink.
type Sink struct {
	hub           *hub
	name          string
	format        pipeline.Format
	checksum      bool
	receiversMost int
	allow         []netip.Prefix
	register      func(slot []byte) (*ucx.Memory, error)

	jobs chan *job // free jobs
	due  []*flight

	known sync.Mutex          // guards slots; held while receivers are chosen for a frame
	slots map[int]*ucx.Memory // registered with UCX, by Frame.Slot

	// Guarded by the hub's lock.
	receivers []*session
	gone      totals // of receivers that have disconnected
	ended     bool
}

// Holds returns how many frames a stream for that many receivers holds at most: two for each, plus the one being
// processed. A single connected receiver may use them all.
func Holds(receivers int) int { return receivers*inFlight + 1 }

// totals are the counters of receivers that have disconnected.
type totals struct {
	receivers, frames, lost, bytes uint64
}

func (t *totals) add(s *session) {
	t.receivers++
	t.frames += s.books.sent
	t.lost += s.books.lost
	t.bytes += s.bytes
}

// newSink creates a stream and adds it to the hub.
func newSink(h *hub, c StreamConfig, f pipeline.Format, register func([]byte) (*ucx.Memory, error)) (*Sink, error) {
	k := &Sink{
		hub: h, name: c.Name, format: f, checksum: c.Checksum, receiversMost: max(c.Receivers, 1), allow: c.Allow,
		register: register, slots: map[int]*ucx.Memory{},
	}
	holds := Holds(k.receiversMost)
	k.jobs = make(chan *job, holds)
	for range holds {
		k.jobs <- &job{sink: k}
	}
	err := h.add(k)
	if err == nil {
		if err = h.streamsChanged(); err != nil {
			err = errors.Join(err, h.remove(k))
		}
	}
	return k, err
}

// allows reports whether an address may take the stream.
func (k *Sink) allows(from netip.Addr) bool {
	return len(k.allow) == 0 || slices.ContainsFunc(k.allow, func(p netip.Prefix) bool { return p.Contains(from) })
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
			return errors.Join(err, k.endConnections())
		}
		k.send(q, f)
	}
}

// ErrStuck means that UCX has not returned a frame: its receiver does nothing, yet its connection has not broken.
var ErrStuck = errors.New("ucx: a receiver that does nothing still has a frame")

// endConnections ends all connections of the stream, and waits for the frames in flight, for at most patience.
func (k *Sink) endConnections() error {
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

// send sends a frame to the receivers that can take it now.
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

// claim chooses the receivers that take a frame now, and returns the frame's memory. If receivers that have
// disconnected still hold every frame that the stream may hold, nobody gets the frame and all lose it.
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

// slot returns the memory of a frame, which it registers with UCX on first use.
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

// Close removes the stream from its server. Run must have ended, or never have been called.
func (k *Sink) Close() error {
	return errors.Join(k.hub.remove(k), k.forget())
}

// forget unregisters all slots from UCX. Nobody may be taking frames.
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

// Stats are the counters of a stream.
type Stats struct {
	Receivers []ReceiverStats `json:"receivers"` // currently connected
	Gone      uint64          `json:"gone"`      // number of receivers that have disconnected
	Frames    uint64          `json:"frames"`    // frames sent, once for each receiver, including disconnected ones
	Lost      uint64          `json:"lost"`      // frames that receivers wanted but had no credits or room for
	Bytes     uint64          `json:"bytes"`
}

// ReceiverStats are the counters of one receiver.
type ReceiverStats struct {
	Address string `json:"address"`
	Every   uint32 `json:"every"`
	Region  string `json:"region"`
	Credits uint32 `json:"credits"`
	Offered uint64 `json:"offered"` // frames of the stream since it subscribed
	Frames  uint64 `json:"frames"`
	Lost    uint64 `json:"lost"`
	Bytes   uint64 `json:"bytes"`
}

func (r ReceiverStats) String() string {
	return fmt.Sprintf("%s: %d frames, %d bytes, lost %d for want of credits; every %d, region %s", r.Address, r.Frames, r.Bytes, r.Lost, r.Every, r.Region)
}

// Stats returns the counters.
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
