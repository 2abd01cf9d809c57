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
	"github.com/tegracast/tegracast/pipeline/files"
)

// ErrReplay is wrapped by every error about a file that cannot be replayed.
var ErrReplay = errors.New("replay")

// MaxReplayRate is the highest rate in frames per second. At this rate RTP's 90 kHz clock ticks twice per frame
// (docs/rtp.md).
const MaxReplayRate = 45000

// maxFrames bounds the index of a file. It corresponds to three days at 60 frames per second.
const maxFrames = 1 << 24

// apart is the minimum time between the timestamps of two frames, so that RTP's clock ticks at least once between them,
// however the timestamps are rounded.
const apart = time.Second/90000 + 1

// ReplayConfig configures a Replay.
type ReplayConfig struct {
	Path string

	// Format describes a file without header: frames of Format.Size() bytes, one after another. The zero Format means
	// that the file is YUV4MPEG2, which describes itself; 4:2:0 becomes I420, 4:2:2 UYVY, and mono Grey.
	Format pipeline.Format

	Rate pipeline.Rate // if not zero, replaces the format's rate; if both are zero, frames play as fast as slots become free
	Loop bool          // restart after the last frame; otherwise Run returns nil

	Slots     int // maximum number of frames held at the same time, 1 to 1024
	Allocator pipeline.Allocator
}

// Validate returns nil if c is valid, else an error that wraps ErrReplay and states the field, its value and the
// violated rule. It does not open the file.
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

// A Replay is a pipeline.Source that plays a file as a camera would. It reads the file frame by frame into the slots,
// so the file may be of any length.
type Replay struct {
	config  ReplayConfig
	file    *os.File
	format  pipeline.Format
	frames  []int64 // offset of each frame in the file
	planes  []byte  // buffer for one frame of 4:2:2 planes before it is interleaved into a slot; nil for all other files
	pool    *pipeline.Pool
	emitted atomic.Uint64
	skipped atomic.Uint64
}

// CheckReplay returns the format of a file's frames if the file can be replayed as frames of format f, which must be
// zero for YUV4MPEG2, at the given rate (ReplayConfig.Rate). Its errors wrap the same errors as those of NewReplay.
func CheckReplay(path string, f pipeline.Format, rate pipeline.Rate) (pipeline.Format, error) {
	r, err := openReplay(ReplayConfig{Path: path, Format: f, Rate: rate})
	if err != nil {
		return pipeline.Format{}, err
	}
	return r.format, r.file.Close()
}

// NewReplay opens the file, checks its structure completely and allocates the slots, which Close frees. Errors wrap
// ErrReplay, and ErrY4M, ErrY4MKind or the operating system's error if one of these is the cause.
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

func openReplay(c ReplayConfig) (*Replay, error) {
	file, size, err := files.OpenRegular(c.Path)
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

func (r *Replay) allocate() error {
	slots, err := allocate(r.config.Allocator, r.config.Slots, r.format)
	if err == nil {
		r.pool = pipeline.NewPool("replay", r.format, slots, nil)
	}
	return err
}

// allocate returns n slots that the CPU can write. On failure it frees those already allocated.
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

// Format returns the format of the frames. Its rate is the nominal one even if the replay is unpaced.
func (r *Replay) Format() pipeline.Format { return r.format }

// Frames returns the number of frames in the file.
func (r *Replay) Frames() int { return len(r.frames) }

// Emitted returns the number of emitted frames.
func (r *Replay) Emitted() uint64 { return r.emitted.Load() }

// Skipped returns the number of frames that were not emitted, because no slot was free or the machine was late. Their
// sequence numbers are missing.
func (r *Replay) Skipped() uint64 { return r.skipped.Load() }

// Status implements pipeline.Source. The counter is the number of skipped frames.
func (r *Replay) Status() pipeline.SourceStatus {
	return pipeline.SourceStatus{Counters: map[string]uint64{"skipped": r.skipped.Load()}}
}

// Run emits frames until ctx ends, or until the end of the file unless Loop is set. Sequence numbers start at 0 and
// include skipped frames. Paced frame n is due n frame periods after the first; it is skipped if no slot is free at
// that time, or if the next frame is already due. An unpaced frame waits for a slot. No two timestamps are within one
// tick of RTP's clock, even if a frame immediately follows a late one, because receivers distinguish frames by their
// timestamps. Run returns an error only if a frame cannot be read.
func (r *Replay) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	p := newPacer(r.format.Rate)
	defer p.timer.Stop()
	paced := r.format.Rate.Num > 0
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

// stamp returns the current time, but at least last plus apart (if last is not zero). If last plus apart is more than a
// millisecond ahead of the clock, stamp sleeps until then, which does not happen with frames of a constant rate.
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

// slot waits until frame n is due and leases a slot for it. It returns nil if the frame is to be skipped.
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

// read reads the frame at offset at of the file into the slot.
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

// A pacer computes when frames are due, without drift.
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

// due returns the start time plus n periods. It computes whole seconds and the rest separately, so that nothing
// overflows.
func (p *pacer) due(n uint64) time.Time {
	ticks, num := n*uint64(p.rate.Den), uint64(p.rate.Num)
	return p.start.Add(time.Duration(ticks/num)*time.Second + time.Duration(ticks%num*uint64(time.Second)/num))
}

func (p *pacer) wait(ctx context.Context, n uint64) error { return waitUntil(ctx, p.timer, p.due(n)) }

// waitUntil waits until due, using a stopped timer, or until ctx ends, in which case it returns ctx.Err().
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

// Close closes the file and frees the slots, after Run has returned. If frames are still held, it returns an error that
// wraps pipeline.ErrLeaked, and can be called again.
func (r *Replay) Close() error {
	if err := r.pool.Close(); err != nil {
		return err
	}
	if err := r.file.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
