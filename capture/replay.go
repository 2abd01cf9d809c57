// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// ErrReplay is wrapped by every error about a file that cannot be replayed.
var ErrReplay = errors.New("replay")

// MaxReplayRate is the highest rate in frames a second: RTP's clock of 90 kHz ticks twice from frame to frame (docs/rtp.md).
const MaxReplayRate = 45000

// maxFrames bounds the index of a file: the frames of three days at 60 a second.
const maxFrames = 1 << 24

// apart is the least time between the stamps of two frames: RTP's clock ticks at least once, wherever it is rounded.
const apart = time.Second/90000 + 1

// ReplayConfig says which file is replayed and how.
type ReplayConfig struct {
	Path string

	// Format is what a file without header holds: frames of Format.Size() bytes, one after the other. The zero
	// Format says that the file is YUV4MPEG2, which describes itself: 4:2:0 becomes I420 and 4:2:2 UYVY.
	Format pipeline.Format

	Rate    pipeline.Rate // frames a second instead of the format's own; when both are zero the replay is unpaced
	Unpaced bool          // every frame of the file as fast as slots become free, whatever the rate says
	Loop    bool          // begin again after the last frame; else Run returns nil after it

	Slots     int // frames that can be held at the same time, 1 to 1024
	Allocator pipeline.Allocator
}

// Validate returns an error that wraps ErrReplay and names the field, its value and the rule. It opens nothing.
func (c ReplayConfig) Validate() error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%w: %s", ErrReplay, fmt.Sprintf(format, a...))
	}
	switch {
	case c.Path == "":
		return bad("no file is named")
	case c.Slots < 1 || c.Slots > 1024:
		return bad("%d slots: must be from 1 to 1024", c.Slots)
	case c.Allocator == nil:
		return bad("no allocator")
	case c.Rate.Num < 0 || c.Rate.Den < 0 || (c.Rate.Num == 0) != (c.Rate.Den == 0):
		return bad("rate %d/%d: both must be positive, or both zero", c.Rate.Num, c.Rate.Den)
	case c.Format == pipeline.Format{}:
		return nil
	case c.Format.PacketPitch != 0 || c.Format.HeaderGap != 0 || c.Format.Memory != pipeline.MemoryHost:
		return bad("format %s: must be plain and in host memory", c.Format)
	}
	if err := c.Format.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrReplay, err)
	}
	return nil
}

// A Replay is a pipeline.Source that plays a file as a camera would. The file is read frame by frame into the slots;
// it may be of any length.
type Replay struct {
	config  ReplayConfig
	file    *os.File
	format  pipeline.Format
	frames  []int64 // where in the file each begins
	planes  []byte  // one frame of 4:2:2 planes on its way into a slot; nil for all other files
	pool    *pipeline.Pool
	emitted atomic.Uint64
	skipped atomic.Uint64
}

// CheckReplay says whether the file can be replayed as frames of the format, which is zero for YUV4MPEG2. Errors are those of
// NewReplay.
func CheckReplay(path string, f pipeline.Format) error {
	r, err := openReplay(ReplayConfig{Path: path, Format: f})
	if err != nil {
		return err
	}
	return r.file.Close()
}

// NewReplay opens the file, checks all of its structure and allocates the slots. Close frees them. Errors wrap
// ErrReplay, and ErrY4M or the operating system's error where there is one.
func NewReplay(c ReplayConfig) (*Replay, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	r, err := openReplay(c)
	if err != nil {
		return nil, err
	}
	if err := r.allocate(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s: %w", ErrReplay, c.Path, err), r.file.Close())
	}
	return r, nil
}

// openReplay opens the file and finds its frames.
func openReplay(c ReplayConfig) (*Replay, error) {
	file, size, err := pipeline.OpenRegular(c.Path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReplay, err)
	}
	r := &Replay{config: c, file: file}
	if err := r.index(size); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s: %w", ErrReplay, c.Path, err), file.Close())
	}
	return r, nil
}

func (r *Replay) index(size int64) error {
	var err error
	if r.config.Format == (pipeline.Format{}) {
		err = r.indexY4M(size)
	} else {
		err = r.indexRaw(size)
	}
	if err != nil {
		return err
	}
	if r.config.Rate.Num != 0 {
		r.format.Rate = r.config.Rate
	}
	if rate := r.format.Rate; rate.Num > MaxReplayRate*rate.Den {
		return fmt.Errorf("%s frames a second: give a rate of at most %d", rate, MaxReplayRate)
	}
	return nil
}

func (r *Replay) indexY4M(size int64) error {
	y, err := parseY4M(r.file, size)
	if err != nil {
		return fmt.Errorf("%w (a file without header needs its pixel format, width and height)", err)
	}
	r.format, r.frames = y.format, y.frames
	if y.planar {
		r.planes = make([]byte, y.format.Size())
	}
	return nil
}

func (r *Replay) indexRaw(size int64) error {
	f := r.config.Format
	length := int64(f.Size())
	head := make([]byte, len(y4mMagic))
	if n, _ := r.file.ReadAt(head, 0); bytes.Equal(head[:n], []byte(y4mMagic)) {
		return fmt.Errorf("is YUV4MPEG2, which describes itself: leave out the format %s", f)
	}
	switch {
	case size == 0:
		return fmt.Errorf("is empty; a frame of %s has %d bytes: write the file again", f, length)
	case size < length:
		return fmt.Errorf("has %d bytes, %d less than a frame of %s (%d bytes): "+
			"correct the width, height, stride or pixel format, or write the file again", size, length-size, f, length)
	case size%length != 0:
		return fmt.Errorf("has %d bytes, that is %d frames of %s (%d bytes each) and %d bytes over: "+
			"correct the width, height, stride or pixel format, or write the file again",
			size, size/length, f, length, size%length)
	}
	if size/length > maxFrames {
		return fmt.Errorf("has %d frames: at most %d are replayed, cut the file", size/length, maxFrames)
	}
	r.format = f
	for at := int64(0); at < size; at += length {
		r.frames = append(r.frames, at)
	}
	return nil
}

// allocate makes the pool.
func (r *Replay) allocate() error {
	slots, err := allocate(r.config.Allocator, r.config.Slots, r.format)
	if err == nil {
		r.pool = pipeline.NewPool("replay", r.format, slots, nil)
	}
	return err
}

// allocate makes n slots that the CPU can write; on failure it frees what it had got.
func allocate(a pipeline.Allocator, n int, f pipeline.Format) (slots []pipeline.Slot, err error) {
	for i := range n {
		s, err := a.AllocSlot(f)
		if err == nil {
			slots = append(slots, s)
			if len(s.Bytes) < f.Size() {
				err = fmt.Errorf("the CPU can write %d bytes of it, a frame of %s needs %d", len(s.Bytes), f, f.Size())
			}
		}
		if err != nil {
			errs := []error{fmt.Errorf("slot %d of %d: %w", i, n, err)}
			for _, s := range slots {
				if s.Close != nil {
					errs = append(errs, s.Close())
				}
			}
			return nil, errors.Join(errs...)
		}
	}
	return slots, nil
}

// Format is what the frames are; its rate is the nominal one even when the replay is unpaced.
func (r *Replay) Format() pipeline.Format { return r.format }

// Frames is the number of frames in the file.
func (r *Replay) Frames() int { return len(r.frames) }

// Emitted is the number of frames that were handed on.
func (r *Replay) Emitted() uint64 { return r.emitted.Load() }

// Skipped is the number of frames that were not, because no slot was free or the machine was late at their time.
// Their sequence numbers are missing.
func (r *Replay) Skipped() uint64 { return r.skipped.Load() }

// Status implements pipeline.Source. The counter is that of skipped frames.
func (r *Replay) Status() pipeline.SourceStatus {
	return pipeline.SourceStatus{Counters: map[string]uint64{"skipped": r.skipped.Load()}}
}

// Run emits the frames until ctx ends, or the file does and is not to be looped. The sequence number is counted from
// 0 and goes on for frames that are skipped. A paced frame n is due n frame periods after the first; it is skipped
// when no slot is free then, or when the next one is due already. An unpaced one waits for a slot. No two frames are stamped
// within one tick of RTP's clock, also when one follows at once that was late: receivers tell frames apart by it.
func (r *Replay) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	p := newPacer(r.format.Rate)
	defer p.timer.Stop()
	paced := !r.config.Unpaced && r.format.Rate.Num > 0
	var last time.Time
	for n := uint64(0); ; n++ {
		if !r.config.Loop && n >= uint64(len(r.frames)) {
			return nil
		}
		f, err := r.slot(ctx, p, n, paced)
		if err != nil {
			return nil // ctx has ended
		}
		if f == nil {
			r.skipped.Add(1)
			continue
		}
		if err := r.read(f, r.frames[n%uint64(len(r.frames))]); err != nil {
			f.Release()
			return fmt.Errorf("%w: %s: frame %d: %w", ErrReplay, r.config.Path, n, err)
		}
		last = stamp(last)
		f.Sequence, f.Times.Captured = n, last
		r.emitted.Add(1)
		emit(f)
	}
}

// stamp is now, but apart from the last stamp. It waits when it would run ahead of the clock by more than frames of one rate do.
func stamp(last time.Time) time.Time {
	now := time.Now()
	least := last.Add(apart)
	if last.IsZero() || now.After(least) {
		return now
	}
	if ahead := least.Sub(now); ahead > time.Millisecond {
		time.Sleep(ahead)
	}
	return least
}

// slot waits for the time of frame n and leases a slot for it, or returns nil when the frame is to be skipped.
func (r *Replay) slot(ctx context.Context, p *pacer, n uint64, paced bool) (*pipeline.Frame, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !paced {
		return r.pool.Wait(ctx)
	}
	if err := p.wait(ctx, n); err != nil {
		return nil, err
	}
	if !time.Now().Before(p.due(n + 1)) {
		return nil, nil
	}
	return r.pool.Get(), nil
}

// read fills the slot with the frame that begins at the given place of the file.
func (r *Replay) read(f *pipeline.Frame, at int64) error {
	dst := f.Bytes[:r.format.Size()]
	if r.planes == nil {
		return r.readAt(dst, at)
	}
	if err := r.readAt(r.planes, at); err != nil {
		return err
	}
	interleave(dst, r.planes)
	return nil
}

func (r *Replay) readAt(dst []byte, at int64) error {
	if n, err := r.file.ReadAt(dst, at); n < len(dst) {
		return fmt.Errorf("read %d of %d bytes at byte %d: %w: the file was changed while it was replayed",
			n, len(dst), at, err)
	}
	return nil
}

// A pacer knows when frames are due, without a drift.
type pacer struct {
	rate  pipeline.Rate
	start time.Time
	timer *time.Timer
}

func newPacer(rate pipeline.Rate) *pacer {
	t := time.NewTimer(0)
	t.Stop()
	return &pacer{rate: rate, start: time.Now(), timer: t}
}

// due is n periods after the start; seconds and the rest apart, so that nothing overflows in any time to come.
func (p *pacer) due(n uint64) time.Time {
	ticks, num := n*uint64(p.rate.Den), uint64(p.rate.Num)
	return p.start.Add(time.Duration(ticks/num)*time.Second + time.Duration(ticks%num*uint64(time.Second)/num))
}

func (p *pacer) wait(ctx context.Context, n uint64) error { return waitUntil(ctx, p.timer, p.due(n)) }

// waitUntil waits by a timer that is stopped.
func waitUntil(ctx context.Context, timer *time.Timer, due time.Time) error {
	d := time.Until(due)
	if d <= 0 {
		return nil
	}
	timer.Reset(d)
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close closes the file and frees the slots, after Run has returned. It fails with an error that wraps
// pipeline.ErrLeaked while frames are held; then it can be called again.
func (r *Replay) Close() error {
	if err := r.pool.Close(); err != nil {
		return err
	}
	if err := r.file.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
