// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
)

// RecordingConfig configures a Recording.
type RecordingConfig struct {
	Files    []string        // played in this order
	From, To record.Position // zero: from the beginning, to the end
	Unpaced  bool            // play as fast as the consumers take frames, without dropping any; otherwise at the pace of the frames' times
	Repeat   bool            // restart after the last frame; otherwise Run returns nil

	Slots     int // maximum number of frames held at the same time
	Allocator pipeline.Allocator
	Driver    *cufile.Driver // reads the frames
	Logger    *slog.Logger   // nil: slog.Default()
}

// A Recording is a pipeline.Source that plays recordings. Its frames have the recorded bytes, numbers, times, flags and
// results. When it repeats, numbers and times continue. A damaged frame is counted and not emitted; its number is then
// missing, as with a camera.
type Recording struct {
	config RecordingConfig
	log    *slog.Logger
	player *record.Player
	pool   *pipeline.Pool
	known  []uintptr // slots registered with the driver

	damaged atomic.Uint64
	idle    atomic.Bool // waiting for a frame that is due much later
}

// NewRecording checks the files, allocates the slots, and registers them with the driver where that is possible. Errors
// wrap ErrReplay, and the error of package record or of the allocator.
func NewRecording(c RecordingConfig) (*Recording, error) {
	r := &Recording{config: c, log: c.Logger}
	if r.log == nil {
		r.log = slog.Default()
	}
	var err error
	if r.player, err = record.NewPlayer(context.Background(), c.Files, c.From, c.To, c.Driver); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReplay, err)
	}
	for _, path := range c.Files {
		if err := c.Driver.Prepare(path); err != nil {
			return nil, errors.Join(fmt.Errorf("%w: %w", ErrReplay, err), r.player.Close())
		}
	}
	for _, why := range r.player.Trouble {
		r.log.Warn("a damaged recording is played up to the damage", "reason", why)
	}
	slots, err := allocate(c.Allocator, c.Slots, r.player.Format)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrReplay, err), r.player.Close())
	}
	for _, s := range slots {
		base := address(s.Bytes)
		if err := c.Driver.RegisterBuffer(base, len(s.Bytes), 0); err != nil { // not fatal: reading is slower without registration
			r.log.Debug("a slot is not registered for reading", "error", err)
			continue
		}
		r.known = append(r.known, base)
	}
	r.pool = pipeline.NewPool("recording", r.player.Format, slots, nil)
	return r, nil
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// Format implements pipeline.Source.
func (r *Recording) Format() pipeline.Format { return r.player.Format }

// Status implements pipeline.Source. The counter is the number of damaged frames.
func (r *Recording) Status() pipeline.SourceStatus {
	return pipeline.SourceStatus{
		Slots: r.config.Slots, Waits: r.config.Unpaced, Idle: r.idle.Load(), Counters: map[string]uint64{"damaged": r.damaged.Load()},
	}
}

// ErrAllDamaged means that a repeated recording contains no playable frame.
var ErrAllDamaged = errors.New("every frame is damaged")

// Mode returns how the files are read.
func (r *Recording) Mode() cufile.Mode { return r.config.Driver.Mode() }

// Run implements pipeline.Source.
func (r *Recording) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	c := course{period: r.player.Format.Rate.Period()}
	for {
		emitted, err := r.playOnce(ctx, &c, emit)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case !r.config.Repeat:
			return nil
		case emitted == 0:
			return fmt.Errorf("%w: %s: %w: check it with tegracast record verify", ErrReplay, r.config.Files[0], ErrAllDamaged)
		}
		if err := r.player.Rewind(); err != nil {
			return err
		}
		c.again()
	}
}

// playOnce plays all frames once, and returns the number of emitted frames.
func (r *Recording) playOnce(ctx context.Context, c *course, emit func(*pipeline.Frame)) (emitted int, err error) {
	timer := time.NewTimer(0)
	timer.Stop()
	defer timer.Stop()
	failing := false
	for ctx.Err() == nil {
		recorded, err := r.player.Next()
		if errors.Is(err, record.ErrEnd) {
			return emitted, nil
		}
		var f *pipeline.Frame
		if err == nil {
			f, err = r.fill(ctx, recorded)
		}
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			r.damaged.Add(1)
			if !failing {
				r.log.Error("a recorded frame is damaged", "error", err)
			}
			failing = true
			continue
		}
		failing = false
		due := c.scheduleFrame(f)
		if !r.config.Unpaced && r.wait(ctx, timer, due) != nil {
			f.Release()
			break
		}
		f.Times.Replayed = time.Now()
		emitted++
		emit(f)
	}
	return emitted, ctx.Err()
}

// fill waits for a free slot and reads a frame into it.
func (r *Recording) fill(ctx context.Context, recorded *record.Frame) (*pipeline.Frame, error) {
	f, err := r.pool.Wait(ctx)
	if err != nil {
		return nil, err
	}
	if err := recorded.Pixels(f.Bytes); err != nil {
		f.Release()
		return nil, err
	}
	recorded.Fill(f)
	return f, nil
}

// shortWait is the longest wait for the next frame during which the source is not idle.
const shortWait = 200 * time.Millisecond

func (r *Recording) wait(ctx context.Context, timer *time.Timer, due time.Time) error {
	r.idle.Store(time.Until(due) > shortWait)
	defer r.idle.Store(false)
	return waitUntil(ctx, timer, due)
}

// Close closes the files and frees the slots, after Run has returned. If frames are still held, it returns an error
// that wraps pipeline.ErrLeaked, and can be called again.
func (r *Recording) Close() error {
	if r.pool.Leased() > 0 {
		return r.pool.Close()
	}
	errs := []error{r.player.Close()}
	for _, base := range r.known {
		errs = append(errs, r.config.Driver.DeregisterBuffer(base))
	}
	r.known = nil
	return errors.Join(append(errs, r.pool.Close())...)
}

// A course computes when frames are due, and continues times and numbers when the recording repeats.
type course struct {
	period time.Duration

	due    time.Time
	shown  time.Time // Times.Shown of the previous frame; zero before the first
	number uint64    // sequence number of the previous frame
	// shift is added to a frame's times, and skip to its number; both change when the recording repeats.
	shift  time.Duration
	skip   uint64
	joined bool // the next frame is the first of a repetition
}

// longGap is the longest recorded time between two frames that is played unchanged. Longer gaps are assumed to be
// pauses between recordings.
const longGap = 10 * time.Second

// scheduleFrame adjusts a frame's number and times, and returns the time at which it is due.
func (c *course) scheduleFrame(f *pipeline.Frame) time.Time {
	if c.joined {
		c.joined = false
		c.shift, c.skip = c.shown.Add(max(c.period, apart)).Sub(f.Times.Shown()), c.number+1-f.Sequence
	}
	f.Sequence += c.skip
	for _, t := range []*time.Time{&f.Times.ExposureStart, &f.Times.ExposureEnd, &f.Times.Captured} {
		if !t.IsZero() {
			*t = t.Add(c.shift)
		}
	}
	now, shown := time.Now(), f.Times.Shown()
	step := max(0, shown.Sub(c.shown))
	switch {
	case c.shown.IsZero():
		c.due, step = now, 0
	case step > longGap:
		step = c.period
	}
	c.due = c.due.Add(step)
	if now.Sub(c.due) > c.period { // late: the following frames keep their own pace
		c.due = now
	}
	c.shown, c.number = shown, f.Sequence
	return c.due
}

// again marks the next frame as the first of a repetition.
func (c *course) again() { c.joined = true }
