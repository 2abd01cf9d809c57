// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/mjpeg"
	"github.com/tegracast/tegracast/pipeline/monotonic"
	"github.com/tegracast/tegracast/pipeline/videodev"
)

var (
	errChanged = errors.New("the camera's picture has changed")
	errEnded   = errors.New("the camera has ended its stream")
	errBroken  = errors.New("the driver has stopped the stream")
)

// run streams until something fails, or until ctx ends, in which case it returns nil. The caller stops the stream.
func (s *v4l2Session) run(ctx context.Context, emit func(*pipeline.Frame)) error {
	if err := s.start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, s.camera.wake.Set)
	defer stop()
	s.camera.wake.Watch(s.watched.poll)
	defer s.camera.wake.Forget()
	w := s.newWatch()
	for ctx.Err() == nil {
		s.camera.wake.Clear() // before looking at what it announces
		s.hungry.Store(true)
		if s.user {
			if err := s.enqueueSlots(); err != nil {
				return err
			}
			s.hungry.Store(s.queued < min(len(s.buffers), max(len(s.buffers)/2, kept)))
		}
		if ctx.Err() != nil {
			break
		}
		what := int16(videodev.ForEvent)
		if s.queued > 0 {
			what |= videodev.ForInput
		}
		ready, err := s.device.Wait(what, s.camera.wake, w.interval)
		if err != nil {
			return fmt.Errorf("waiting for it: %w", err)
		}
		if ready.Event {
			if err := s.takeEvents(); err != nil {
				return err
			}
		}
		if ready.Buffer || ready.Broken {
			if err := s.takeFrames(ctx, emit, ready.Broken); err != nil {
				return err
			}
		}
		if err := w.look(); err != nil {
			return err
		}
	}
	return nil
}

// kept is the number of buffers of which drivers may keep all but one: those that they write into, and those that must
// be there before they give one back.
const kept = 4

// takeEvents takes the events that the device has.
func (s *v4l2Session) takeEvents() error {
	for {
		switch kind, err := videodev.NextEvent(s.device); {
		case err != nil:
			return fmt.Errorf("VIDIOC_DQEVENT: %w", err)
		case kind == 0:
			return nil
		case kind == videodev.EventSourceChange:
			return errChanged
		case kind == videodev.EventEnd:
			return errEnded
		}
	}
}

// takeFrames takes a buffer that the device has finished, or all of them if it is broken.
func (s *v4l2Session) takeFrames(ctx context.Context, emit func(*pipeline.Frame), broken bool) error {
	for ctx.Err() == nil {
		b := s.describe(0)
		err := s.device.Ioctl(videodev.Dequeue, unsafe.Pointer(b))
		switch {
		case errors.Is(err, unix.EAGAIN) && broken && s.queued > 0:
			return errBroken
		case errors.Is(err, unix.EAGAIN):
			return nil
		case err != nil:
			return fmt.Errorf("VIDIOC_DQBUF: %w", err)
		case int(b.Index) >= len(s.buffers) || s.buffers[b.Index].slot < 0:
			return fmt.Errorf("VIDIOC_DQBUF: %w: buffer %d, which it does not have", videodev.ErrAnswer, b.Index)
		}
		now := time.Now()
		i, slot := int(b.Index), s.buffers[b.Index].slot
		s.buffers[i].slot, s.queued = -1, s.queued-1
		err = s.take(b, i, slot, now, emit)
		if !s.user && err == nil {
			err = s.enqueue(i, i)
		}
		if err != nil || !broken {
			return err
		}
	}
	return nil
}

// take makes a frame from a finished buffer and emits it, or counts why not.
func (s *v4l2Session) take(b *videodev.Buffer, i, slot int, now time.Time, emit func(*pipeline.Frame)) error {
	c := s.camera
	sequence, times := s.count(b.Sequence, now), timesOf(b, now)
	if b.Flags&videodev.FlagError != 0 || !s.full(b) {
		c.damaged.Add(1)
		if s.user {
			c.slotFreed(slot)
		}
		return nil
	}
	f, err := s.lease(slot)
	if f == nil {
		return err
	}
	switch t := s.transfer; {
	case t.format.Pixel == pipeline.MJPEG:
		if !s.takeFile(f, b, i) {
			c.damaged.Add(1)
			f.Release()
			return nil
		}
	case !s.user:
		t.copy(f.Bytes, s.begin(i))
	case !t.direct || s.args.planes[0].Offset > 0 && s.kind == videodev.CaptureMulti:
		t.copy(f.Bytes, s.beginOf(c.memory[slot].Bytes()))
	}
	f.Sequence, f.Times, f.Flags = sequence, times, pipeline.FlagUnverified
	s.deliver(f, emit)
	return nil
}

// takeFile makes Bytes of a frame the JPEG file in a finished buffer, and reports whether that is whole.
func (s *v4l2Session) takeFile(f *pipeline.Frame, b *videodev.Buffer, i int) (whole bool) {
	begin, end := s.filled(b, 0)
	if !s.user {
		f.Bytes = f.Bytes[:copy(f.Bytes, s.buffers[i].planes[0][begin:end])]
	} else {
		f.Bytes = f.Bytes[begin:end]
	}
	f.Bytes, whole = mjpeg.Trim(f.Bytes)
	return whole
}

// deliver counts a frame and emits it, unless the session was given up.
func (s *v4l2Session) deliver(f *pipeline.Frame, emit func(*pipeline.Frame)) {
	s.effects.Lock()
	defer s.effects.Unlock()
	if s.given {
		f.Release()
		return
	}
	c := s.camera
	c.states.last.Store(f.Sequence)
	c.frames.Add(1)
	if c.cfg.OnFrame != nil {
		c.cfg.OnFrame(f)
	}
	emit(f)
}

// lease leases the slot into which the device has written, or, if it was not written into a slot, any free one. It returns
// nil if there is none.
func (s *v4l2Session) lease(slot int) (*pipeline.Frame, error) {
	c := s.camera
	if !s.user {
		f := c.pool.Get()
		if f == nil {
			c.crowded.Add(1)
			return nil, nil
		}
		slot = f.Slot()
		c.mu.Lock()
		c.slots[slot] = slotLeased // also for a later session, which may give slots to the driver
		c.mu.Unlock()
		return f, nil
	}
	c.mu.Lock()
	c.slots[slot] = slotLeased
	c.mu.Unlock()
	return c.pool.Lease(slot)
}

// begin returns the planes of a mapped buffer, from where their pixels begin.
func (s *v4l2Session) begin(i int) [][]byte {
	planes := s.buffers[i].planes
	if s.kind != videodev.CaptureMulti {
		return planes
	}
	for k, m := range planes {
		s.args.list[k] = m[s.args.planes[k].Offset:] // full has checked it
	}
	return s.args.list[:len(planes)]
}

// beginOf returns a slot as the only plane of a buffer, from where its pixels begin.
func (s *v4l2Session) beginOf(slot []byte) [][]byte {
	s.args.list[0] = slot
	if s.kind == videodev.CaptureMulti {
		s.args.list[0] = slot[s.args.planes[0].Offset:]
	}
	return s.args.list[:1]
}

// filled returns the range of bytes that the device has filled in plane k of a finished buffer.
func (s *v4l2Session) filled(b *videodev.Buffer, k int) (begin, end uint32) {
	if s.kind != videodev.CaptureMulti {
		return 0, b.Used
	}
	return s.args.planes[k].Offset, s.args.planes[k].Used
}

// full reports whether a finished buffer contains a whole frame, and nothing impossible.
func (s *v4l2Session) full(b *videodev.Buffer) bool {
	for k, need := range s.transfer.need {
		room := int(s.transfer.layout.Planes[k].Size)
		if !s.user { // a driver may map less than a frame can have
			room = min(room, len(s.buffers[b.Index].planes[k]))
		}
		begin, end := s.filled(b, k)
		if int(end) > room || begin > end || int(end-begin) < need || len(s.transfer.need) > 1 && s.user && begin > 0 {
			return false
		}
	}
	return true
}

// count returns the number of a frame from the driver's own, which begins again with each stream and wraps around. Gaps
// are losses. A driver that does not count has none. How many frames were lost while there was no stream is estimated.
func (s *v4l2Session) count(sequence uint32, now time.Time) uint64 {
	c := s.camera
	sup, step := &c.sup, uint64(1)
	switch {
	case s.seen:
		if d := sequence - s.last; d > 0 && d < 1<<31 {
			step = uint64(d)
		}
	case !sup.frameAt.IsZero() && !c.cfg.Triggered && c.format.Rate.Period() > 0:
		step = 1 + lostSince(now.Sub(sup.frameAt), c.format.Rate.Period())
	}
	c.lost.Add(step - 1)
	s.seen, s.last = true, sequence
	number := sup.next + step - 1
	sup.next, sup.frameAt = number+1, now
	return number
}

// timesOf returns the times of a frame. The driver's timestamp is used if it is of the monotonic clock, which is also Go's
// (buffer.rst, "Timestamp"): taken at the start of the exposure, or when the last pixel was received. Other kinds mean
// nothing here.
func timesOf(b *videodev.Buffer, now time.Time) pipeline.Times {
	t := pipeline.Times{Captured: now}
	if b.Flags&videodev.FlagStamps != videodev.FlagStampMonotone {
		return t
	}
	stamp := time.Duration(b.Seconds)*time.Second + time.Duration(b.Microseconds)*time.Microsecond
	at := now.Add(stamp - v4l2Clock().Of(now))
	const oldest = time.Minute // nothing waits for so long
	switch {
	case at.After(now) || now.Sub(at) > oldest:
	case b.Flags&videodev.FlagStampSources == videodev.FlagStampStart:
		t.ExposureStart = at
	case b.Flags&videodev.FlagStampSources == 0:
		t.Captured = at
	}
	return t
}

// v4l2Clock converts to the clock of the drivers' timestamps.
var v4l2Clock = sync.OnceValue(func() *monotonic.Clock {
	c := monotonic.NewClock()
	return &c
})

// A v4l2Watch looks whether frames come.
type v4l2Watch struct {
	session  *v4l2Session
	interval time.Duration
	timeout  time.Duration
	quiet    silence
	next     time.Time // of the next look
	frames   uint64    // at the latest look
}

func (s *v4l2Session) newWatch() *v4l2Watch {
	c := s.camera
	period := c.format.Rate.Period()
	w := &v4l2Watch{session: s, timeout: max(c.cfg.FrameTimeout, 4*period)}
	w.interval = min(max(4*period, watchLeast), watchMost, w.timeout/4).Round(time.Millisecond)
	w.quiet, w.frames, w.next = newSilence(w.interval), c.frames.Load()+c.damaged.Load()+c.crowded.Load(), time.Now().Add(w.interval)
	return w
}

// look examines the stream once in an interval, and returns ErrStalled if frames should come and do not. They need not if
// outputs hold the slots: with a single one, many drivers wait for another before they give it back.
func (w *v4l2Watch) look() error {
	now := time.Now()
	if now.Before(w.next) {
		return nil
	}
	w.next = now.Add(w.interval)
	c := w.session.camera
	silent := w.quiet.length(now)
	frames := c.frames.Load() + c.damaged.Load() + c.crowded.Load()
	moved := frames != w.frames
	w.frames = frames
	switch {
	case moved:
		w.quiet.end()
		w.session.effect(func() { c.states.to(Streaming, nil) })
	case c.pool.Leased() >= c.cfg.Slots-1, c.cfg.Triggered && w.session.queued > 0:
		w.quiet.end()
		c.sup.rested = true
		w.session.effect(func() { c.states.to(Idle, nil) })
	case silent >= w.timeout:
		return fmt.Errorf("%w: none for %v, in which this process had no processor for %v", ErrStalled,
			(silent + w.quiet.late).Round(time.Millisecond), w.quiet.late.Round(time.Millisecond))
	}
	return nil
}
