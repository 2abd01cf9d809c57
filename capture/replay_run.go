package capture

import (
	"context"
	"fmt"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// Run emits the frames until ctx ends, or the file does and is not to be looped. The sequence number is counted from
// 0 and goes on for frames that are skipped. A paced frame n is due n frame periods after the first; it is skipped
// when no slot is free then, or when the next one is due already. An unpaced one waits for a slot.
func (r *Replay) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	p := newPacer(r.format.Rate)
	defer p.timer.Stop()
	paced := !r.config.Unpaced && r.format.Rate.Num > 0
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
		f.Sequence, f.Times.Captured = n, time.Now()
		r.emitted.Add(1)
		emit(f)
	}
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

func (p *pacer) wait(ctx context.Context, n uint64) error {
	d := time.Until(p.due(n))
	if d <= 0 {
		return nil
	}
	p.timer.Reset(d)
	select {
	case <-p.timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
