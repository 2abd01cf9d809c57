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

// RecordingConfig says which recordings are played and how.
type RecordingConfig struct {
	Files    []string        // in the order in which they are played
	From, To record.Position // none: from the beginning, to the end
	Unpaced  bool            // as fast as the consumers take the frames, none of which is dropped; else at the pace of the frames' times
	Repeat   bool            // begin again after the last frame; else Run returns nil after it

	Slots     int // frames that can be held at the same time
	Allocator pipeline.Allocator
	Driver    *cufile.Driver // reads the frames
	Logger    *slog.Logger   // nil: slog.Default()
}

// A Recording is a pipeline.Source that plays recordings: its frames have the bytes, numbers, times, flags and results that were
// recorded. When it begins again numbers and times go on. A frame that is damaged is counted, and not emitted; its number is
// missing then, as with a camera.
type Recording struct {
	config RecordingConfig
	log    *slog.Logger
	player *record.Player
	pool   *pipeline.Pool
	known  []uintptr // slots that are registered with the driver

	damaged atomic.Uint64
	idle    atomic.Bool // it waits for a frame that comes much later
}

// NewRecording checks the files, allocates the slots and registers them with the driver. Errors wrap ErrReplay, and record's.
func NewRecording(c RecordingConfig) (*Recording, error) {
	r := &Recording{config: c, log: c.Logger}
	if r.log == nil {
		r.log = slog.Default()
	}
	var err error
	if r.player, err = record.NewPlayer(c.Files, c.From, c.To, c.Driver); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReplay, err)
	}
	for _, why := range r.player.Trouble {
		r.log.Warn("a recording is played up to where it is damaged", "reason", why)
	}
	slots, err := allocate(c.Allocator, c.Slots, r.player.Format)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReplay, err)
	}
	for _, s := range slots {
		base := address(s.Bytes)
		if err := c.Driver.RegisterBuffer(base, len(s.Bytes), 0); err != nil { // it is slower, and no less
			r.log.Debug("a slot is not registered for reading", "error", err)
			continue
		}
		r.known = append(r.known, base)
	}
	r.pool = pipeline.NewPool("recording", r.player.Format, slots, nil)
	return r, nil
}

// address is where a slot lies.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// Format implements pipeline.Source.
func (r *Recording) Format() pipeline.Format { return r.player.Format }

// Status implements pipeline.Source. The counter is that of damaged frames.
func (r *Recording) Status() pipeline.SourceStatus {
	return pipeline.SourceStatus{
		Slots: r.config.Slots, Waits: r.config.Unpaced, Idle: r.idle.Load(), Counters: map[string]uint64{"damaged": r.damaged.Load()},
	}
}

// ErrAllDamaged says that a recording that begins again has no frame that can be played.
var ErrAllDamaged = errors.New("every frame is damaged")

// Run implements pipeline.Source.
func (r *Recording) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	c := course{period: r.player.Format.Rate.Period()}
	for {
		emitted, err := r.pass(ctx, &c, emit)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case !r.config.Repeat:
			return nil
		case emitted == 0:
			return fmt.Errorf("%w: %s: %w: check it by tegracast record verify", ErrReplay, r.config.Files[0], ErrAllDamaged)
		}
		if err := r.player.Rewind(); err != nil {
			return err
		}
		c.again()
	}
}

// pass plays all frames once, and says how many.
func (r *Recording) pass(ctx context.Context, c *course, emit func(*pipeline.Frame)) (emitted int, err error) {
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
		due := c.take(f)
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

// fill reads a frame into a slot.
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

// shortWait is how long a source may wait for the next frame and is not idle.
const shortWait = 200 * time.Millisecond

func (r *Recording) wait(ctx context.Context, timer *time.Timer, due time.Time) error {
	r.idle.Store(time.Until(due) > shortWait)
	defer r.idle.Store(false)
	return waitUntil(ctx, timer, due)
}

// Close closes the files and frees the slots, after Run has returned. It fails with an error that wraps pipeline.ErrLeaked while
// frames are held; then it can be called again.
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

// A course says when frames are due, and goes on where the recording begins again.
type course struct {
	period time.Duration

	due    time.Time
	shown  time.Time // the moment that the last frame shows; zero: it is the first one
	number uint64    // of the last frame
	// shift and skip are what is added to times and numbers since the recording has begun again.
	shift  time.Duration
	skip   uint64
	joined bool // the next frame is the first one again
}

// longGap is the longest time between two frames that is played as it was; a longer one is where recordings were not made.
const longGap = 10 * time.Second

// take gives a frame its place, and says when it is due.
func (c *course) take(f *pipeline.Frame) time.Time {
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
	if now.Sub(c.due) > c.period { // late: what is behind follows at its own pace
		c.due = now
	}
	c.shown, c.number = shown, f.Sequence
	return c.due
}

// again says that the next frame is the first one again.
func (c *course) again() { c.joined = true }
