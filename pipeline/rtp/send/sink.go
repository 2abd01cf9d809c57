// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/flood"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// A keyFramer is a packetizer whose pictures refer to others. KeyFrame requests a picture that does not.
type keyFramer interface{ KeyFrame() }

// A Sink sends the frames of one output as an RTP stream. It implements pipeline.Sink.
type Sink struct {
	config Config
	format pipeline.Format
	packer rtp.Packetizer
	trains []*train
	sender *transmitter
	came   arrivals     // estimates the frames' arrival times
	wake   func()       // wakes the sender's turn
	visits *slog.Logger // logger for messages about readers

	watching sync.Mutex // held to change watchers
	watchers atomic.Pointer[[]*watcher]

	numbered chan struct{} // signals that a filling frame has been sent, so that the next sequence number is known

	frames, failed atomic.Uint64
	closing        sync.Once
	closed         error
}

// New returns a Sink for frames of format f, whose Rate is the output's own frame rate, and opens the sockets to
// c.Destinations. Run releases everything, as does Close if Run is never called.
func New(c Config, f pipeline.Format) (*Sink, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c = c.withDefaults(); c.Start == nil {
		c.Start = rtp.RandomStart()
	}
	if err := c.CheckFormat(f); err != nil {
		return nil, err
	}
	packer, err := rtp.NewPacketizer(c.Stream, f)
	if err != nil {
		return nil, err
	}
	s := &Sink{config: c, format: f, packer: packer, visits: flood.Logger(c.Logger)}
	s.watchers.Store(&[]*watcher{})
	for range c.Holds(f) {
		t, err := s.packer.NewTrain()
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.trains = append(s.trains, &train{Train: t})
	}
	s.sender = newTransmitter(c, f, s.trains[0])
	if k, ok := packer.(keyFramer); ok {
		s.sender.keyFrame = k.KeyFrame
	}
	s.came.period = s.sender.period
	s.wake, s.numbered = s.sender.turn.wake, make(chan struct{}, 1)
	dests, err := ResolveAll(context.Background(), c.Destinations)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	for _, d := range dests {
		if err := s.sender.Add(d); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// Needs implements pipeline.Sink. It requires the format given to New, with any frame rate, and holds one frame for
// each train. For results it accepts any format and memory, because no pixels are read.
func (s *Sink) Needs() pipeline.SinkNeeds {
	if s.config.Payload == rtp.Results {
		return pipeline.SinkNeeds{Holds: len(s.trains), OnDevice: true}
	}
	return pipeline.SinkNeeds{Format: s.format, Holds: len(s.trains)}
}

// job is a train with the frame that it points into.
type job struct {
	train  *train
	frame  *pipeline.Frame
	failed bool
}

// inFlight reports whether the kernel may still read the frame.
func (j job) inFlight() bool { return j.train.inFlight.Load() > 0 }

// Run implements pipeline.Sink. It packetizes one frame while it sends the previous one, and holds both, plus those
// that the kernel is sending from their own memory. It returns after it has sent the frames that it holds, and BYE by
// RTCP.
func (s *Sink) Run(ctx context.Context, q *pipeline.Queue) error {
	return s.sendFrames(ctx, q, func(send func()) {
		s.config.Threads.startTurn(&s.sender.turn, s.sender.bits*float64(max(1, len(*s.sender.dests.Load()))), send)
	})
}

// sendFrames is Run with a function begin that calls send in the sender's turn.
func (s *Sink) sendFrames(ctx context.Context, q *pipeline.Queue, begin func(send func())) error {
	h := newHolding(s.sender, q, s.trains)
	ready := make(chan job, len(s.trains))
	begin(func() { s.send(h, ready) })
	defer context.AfterFunc(ctx, s.wake)() // a filling frame may never end
	var err error
	for err == nil {
		var j job
		if j, err = s.next(ctx, h); err == nil {
			fills := j.train.filling.frame != nil
			ready <- j
			if s.wake(); fills {
				<-s.numbered // ends: send takes the job, whose frame has ctx
			}
		}
	}
	close(ready)
	s.wake()
	<-s.sender.turn.ended // ends: ready is closed, and a frame takes a period
	h.drain()
	return errors.Join(err, s.Close())
}

// send sends jobs in the sender's turn until the turn moves or ready is closed.
func (s *Sink) send(h *holding, ready <-chan job) {
	for !s.sender.turn.moves() {
		select {
		case j, more := <-ready:
			if !more {
				return
			}
			fills := j.train.filling.frame != nil
			j.failed = s.sender.Send(j.train)
			if h.addSent(j); fills {
				s.numbered <- struct{}{}
			}
		default:
			s.sender.turn.wait()
		}
	}
}

// next packetizes the next frame that somebody receives; until then, frames without a receiver count as delivered, and
// frames that cannot be packetized as dropped. It takes a frame only when a train is free; before that the queue's
// policy applies.
func (s *Sink) next(ctx context.Context, h *holding) (job, error) {
	var t *train
	select {
	case t = <-h.free:
	case <-ctx.Done(): // the kernel may hold all trains for as long as a link is stuck
		return job{}, ctx.Err()
	}
	for {
		waited := s.config.Payload == rtp.Raw && h.queue.Len() > 0 // frames of other payloads may have waited for the encoder
		f, err := s.frame(ctx, h.queue, t)
		if err != nil {
			h.free <- t
			return job{}, err
		}
		if t.filling.frame == nil && len(*s.sender.dests.Load()) == 0 && len(*s.watchers.Load()) == 0 {
			h.queue.Done(f) // no receiver: nothing is packetized or encoded
			continue
		}
		err = s.packetize(t, f)
		if err == nil {
			s.frames.Add(1)
			if t.filling.frame == nil {
				for _, w := range *s.watchers.Load() {
					w.take(t.Train, f)
				}
			}
			t.came = s.came.came(s.sender.pacer.now(), waited)
			return job{train: t, frame: f}, nil
		}
		s.failed.Add(1)
		h.queue.Fail(f, pipeline.DropSink, fmt.Errorf("rtp: frame cannot be packetized: %w", err))
	}
}

func (s *Sink) packetize(t *train, f *pipeline.Frame) error {
	if ssrc, changes := s.sender.identity.next(); changes {
		s.packer.SetSSRC(ssrc)
	}
	now := time.Now()
	s.sender.adaptation.follow(now)
	err := s.packer.Packetize(t.Train, f)
	if err == nil {
		s.sender.adaptation.sent(t.Train.Bytes(), now)
	}
	return err
}

// Close frees a Sink that is not running. A second Close only returns the first one's error.
func (s *Sink) Close() error {
	s.closing.Do(func() {
		var errs []error
		if s.sender != nil {
			errs = append(errs, s.sender.Close())
		}
		for _, t := range s.trains {
			errs = append(errs, t.Close())
		}
		s.closed = errors.Join(errs...)
	})
	return s.closed
}

// Add adds a destination while the sink is running.
func (s *Sink) Add(dest Destination) error { return s.sender.Add(dest) }

// Destinations returns the destinations of the stream, not including readers.
func (s *Sink) Destinations() (list []Destination) {
	for _, d := range *s.sender.dests.Load() {
		if d.reader == "" {
			list = append(list, Destination{d.name, d.socket.addr})
		}
	}
	return list
}

// Remove removes the destination with the name or address dest while the sink is running. The destination gets BYE
// instead of the rest of the frame being sent.
func (s *Sink) Remove(dest string) error { return s.sender.Remove(dest) }

// Exchange replaces the destinations in gone, which must be among those that Destinations returns, by those in fresh,
// while the sink is running. If one of fresh cannot be opened, or the stream is sent there already, nothing changes.
func (s *Sink) Exchange(gone, fresh []Destination) error { return s.sender.Exchange(gone, fresh) }

// A watcher is called with frames and their trains.
type watcher struct {
	take func(*rtp.Train, *pipeline.Frame)
}

// Watch makes the sink call take with each frame and its train before packets are sent, until stop is called. take must
// not block, and must not keep its arguments. A call may still be in progress when stop returns. While a stream is
// watched, its frames are packetized even if it has no destinations. take is not called with filling frames.
func (s *Sink) Watch(take func(*rtp.Train, *pipeline.Frame)) (stop func()) {
	w := &watcher{take}
	s.watching.Lock()
	defer s.watching.Unlock()
	list := append(slices.Clone(*s.watchers.Load()), w)
	s.watchers.Store(&list)
	return func() {
		s.watching.Lock()
		defer s.watching.Unlock()
		list := slices.DeleteFunc(slices.Clone(*s.watchers.Load()), func(x *watcher) bool { return x == w })
		s.watchers.Store(&list)
	}
}

// Payload returns the stream's payload format.
func (s *Sink) Payload() rtp.Payload { return s.config.Payload }

// ProfileLevelID returns the profile and the level of the stream as rtp.ProfileLevelID does, or "" if it is not H.264.
func (s *Sink) ProfileLevelID() string { return rtp.ProfileLevelID(s.config.H264) }

// KeyFrame requests a picture that refers to no other, if the payload has such pictures. It is sent soon, but requests
// in rapid succession are combined.
func (s *Sink) KeyFrame() { s.sender.keyFrame() }

// SDP returns the session description of the stream as sent to the first destination, not counting readers, or without
// a specific destination if there is none.
func (s *Sink) SDP() ([]byte, error) {
	to, from := netip.AddrPortFrom(netip.IPv4Unspecified(), rtp.DefaultPort), netip.IPv4Unspecified()
	for _, d := range *s.sender.dests.Load() {
		if d.reader == "" {
			to, from = d.socket.addr, d.socket.local()
			break
		}
	}
	return s.describe(from, to)
}

// SDPTo returns the session description of the stream as sent to the destination that was added with this name.
func (s *Sink) SDPTo(dest string) ([]byte, error) {
	for _, d := range *s.sender.dests.Load() {
		if d.reader == "" && d.name == dest {
			return s.describe(d.socket.local(), d.socket.addr)
		}
	}
	return nil, fmt.Errorf("%w: %s: the stream is not sent there", ErrDestination, dest)
}

func (s *Sink) describe(from netip.Addr, to netip.AddrPort) ([]byte, error) {
	return rtp.Describe(s.config.Stream, s.format, rtp.Path{From: from, To: to, TTL: s.config.TTL})
}

// Stats returns the sink's counters.
func (s *Sink) Stats() Stats {
	st := Stats{
		Frames: s.frames.Load(), Failed: s.failed.Load(), Bits: int(s.sender.adaptation.bits.Load()),
		Bucket: s.sender.bucket.occupancy(), Gap: s.sender.bucket.gaps.Percentiles(),
		First: s.sender.first.Percentiles(), Last: s.sender.last.Percentiles(), Destinations: s.sender.Stats(),
	}
	for _, d := range st.Destinations {
		st.Packets += d.Packets
		st.Bytes += d.Bytes
	}
	return st
}
