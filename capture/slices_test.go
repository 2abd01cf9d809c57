// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/pipeline"
)

const slicesAFrame = 8

// reader is an output that reads a camera's frames line by line as they arrive.
type reader struct {
	t     *testing.T
	bench *bench
	log   lockedBuffer
	stats pipeline.Stats // at the end

	mu             sync.Mutex
	first, last    uint64
	frames, early  int // emitted frames; frames whose first line was read before the last one had arrived
	whole, damaged int
	reached        []int     // lines read of each damaged frame
	misled         int       // frames of which wrong lines were read; all of them are damaged
	at             time.Time // end of the last whole frame
	gap            time.Duration
	flags          pipeline.FrameFlags // flags common to all whole frames
}

func (*reader) Needs() pipeline.SinkNeeds { return pipeline.SinkNeeds{} }

func (r *reader) Run(ctx context.Context, q *pipeline.Queue) error {
	for {
		f, err := q.NextFilling(ctx)
		if err != nil {
			return err
		}
		if r.read(ctx, f) {
			q.Done(f)
		} else {
			q.Fail(f, pipeline.DropDamaged, nil)
		}
	}
}

// read reports whether the frame ended as whole.
func (r *reader) read(ctx context.Context, f *pipeline.Frame) (whole bool) {
	sensor := r.bench.sensor
	height, stride := f.Format.Height, f.Format.Stride
	var want []byte
	wrong, y := false, 0
	for y < height {
		have, err := f.WaitLines(ctx, y+1)
		if err != nil {
			break
		}
		if want == nil {
			r.begun(f, have)
			want = make([]byte, sensor.FrameBytes())
			n, err := model.ReadStamp(f.Bytes[:stride], sensor.Config().Format)
			if err != nil {
				wrong = true
			}
			sensor.Frame(n, want)
		}
		wrong = wrong || !bytes.Equal(f.Bytes[y*stride:have*stride], want[y*stride:have*stride])
		y = have
	}
	return r.ended(f, f.WaitWhole(ctx), y, wrong)
}

func (r *reader) begun(f *pipeline.Frame, lines int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.frames++; lines < f.Format.Height {
		r.early++
	}
}

func (r *reader) ended(f *pipeline.Frame, err error, lines int, wrong bool) (whole bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if wrong {
		r.misled++
	}
	switch {
	case r.damaged+r.whole == 0:
		r.first = f.Sequence
	case f.Sequence <= r.last:
		r.t.Errorf("frame %d after frame %d", f.Sequence, r.last)
	}
	if r.last = f.Sequence; err != nil {
		r.damaged, r.reached = r.damaged+1, append(r.reached, lines)
		return false
	}
	now := time.Now()
	if wrong {
		r.t.Errorf("frame %d ended whole, and its lines were wrong", f.Sequence)
	}
	if f.Times.Captured.IsZero() || f.Times.ExposureEnd.Before(f.Times.ExposureStart) {
		r.t.Errorf("frame %d has times %+v", f.Sequence, f.Times)
	}
	r.flags &= f.Flags
	r.whole, r.gap, r.at = r.whole+1, max(r.gap, now.Sub(r.at)), now
	return true
}

// checkBooks checks that every frame that was handed on is accounted for, once.
func (r *reader) checkBooks() {
	r.t.Helper()
	in, out := r.stats.Sources[0], r.stats.Outputs[0]
	if n := r.last - r.first + 1; in.Captured+in.Lost != n {
		r.t.Errorf("captured %d, lost %d, of %d frames", in.Captured, in.Lost, n)
	}
	if out.Captured != in.Captured || out.Delivered != uint64(r.whole) || out.Dropped["reader/damaged"] != uint64(r.damaged) ||
		out.Drops() != uint64(r.damaged) || out.Waiting != 0 || r.whole+r.damaged != int(in.Captured) {
		r.t.Errorf("%d whole, %d damaged; books: %+v, %+v", r.whole, r.damaged, in, out)
	}
}

// readSlices streams from a camera whose lines arrive over most of its period, in eight slices per frame, until play
// returns, and checks the counts.
func readSlices(t *testing.T, plan model.FaultPlan, poll bool, lines int, play func(*reader)) (*reader, error) {
	return readSlicesOf(t, plan, poll, lines, false, play)
}

// readSlicesOf is readSlices with a choice between a camera and a bare stream.
func readSlicesOf(t *testing.T, plan model.FaultPlan, poll bool, lines int, bare bool, play func(*reader)) (*reader, error) {
	sensor := model.SensorConfig{Width: 64, Height: lines, Period: faultyRate.Period(), Readout: faultyRate.Period() * 3 / 4, Bare: bare}
	if !bare {
		sensor.Exposure = 2 * time.Millisecond
	}
	return readSlicesFrom(t, newBenchOf(t, plan, nil, sensor), poll, play)
}

// readSlicesFrom is readSlices for the camera of a given bench.
func readSlicesFrom(t *testing.T, b *bench, poll bool, play func(*reader)) (*reader, error) {
	b.card.Poll = poll
	lines, bare := b.sensor.Config().Height, b.sensor.Config().Bare
	r := &reader{t: t, bench: b, at: time.Now(), flags: ^pipeline.FrameFlags(0)}
	logger := slog.New(slog.NewTextHandler(&r.log, nil))
	c, err := NewFPGACamera(FPGAConfig{
		Card: b.card, Width: 64, Height: lines, Pixel: pipeline.RGGB10, Slots: 6, Rate: faultyRate, SliceLines: lines / slicesAFrame,
		GiveUp: 5 * time.Second, Logger: logger, Bare: bare,
	})
	if err != nil {
		t.Fatal(err)
	}
	g := pipeline.NewGraph(pipeline.GraphConfig{Logger: logger})
	if err := g.AddSource("camera", c); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Attach(pipeline.OutputConfig{Name: "reader", Sink: r}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	played := make(chan struct{})
	go func() {
		defer close(played)
		defer cancel()
		play(r)
	}()
	err = g.Run(ctx)
	cancel()
	if err == nil {
		r.gap = max(r.gap, time.Since(r.at))
	}
	r.stats = g.Stats()
	r.checkBooks()
	if closed := errors.Join(g.Close(), c.Close()); closed != nil && !expected(closed) {
		t.Errorf("close: %v", closed)
	}
	<-played // a stream may end on its own
	return r, err
}

// TestFramesAreReadWhileTheyArrive checks that all frames are correct, with interrupts and in poll mode.
func TestFramesAreReadWhileTheyArrive(t *testing.T) {
	for _, poll := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r, err := readSlices(t, model.FaultPlan{}, poll, 320, func(*reader) { time.Sleep(3 * time.Second) })
			if err != nil || r.whole < 140 || r.early < r.whole || r.misled > 0 || r.damaged > 0 {
				t.Errorf("poll %t: %d whole of %d, %d early, %d damaged, %d misled: %v", poll, r.whole, r.frames, r.early, r.damaged, r.misled, err)
			}
		})
	}
}

// TestARevocationEndsAFrameThatFills checks that goroutines waiting for the frame's lines get an error at once.
func TestARevocationEndsAFrameThatFills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBenchOf(t, model.FaultPlan{}, nil, model.SensorConfig{
			Width: 64, Height: 320, Period: faultyRate.Period(), Exposure: time.Millisecond, Readout: faultyRate.Period() * 3 / 4,
		})
		c, err := NewFPGACamera(FPGAConfig{
			Card: b.card, Width: 64, Height: 320, Pixel: pipeline.RGGB10, Slots: 6, Rate: faultyRate, SliceLines: 32, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		var once sync.Once
		var why error
		var took time.Duration
		var readers sync.WaitGroup
		err = c.Run(ctx, func(f *pipeline.Frame) {
			readers.Go(func() {
				defer f.Release()
				if f.Sequence != 7 {
					return
				}
				if _, err := f.WaitLines(ctx, 64); err != nil {
					t.Error(err)
				}
				once.Do(func() { b.sim.InvalidateAny(uint64(f.Slot())) })
				began := time.Now()
				_, why = f.WaitLines(ctx, 320)
				took = time.Since(began)
			})
		})
		readers.Wait()
		if err != nil || !errors.Is(why, pipeline.ErrDamaged) || took > 10*time.Millisecond {
			t.Errorf("after %v: %v; %v", took, why, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}
