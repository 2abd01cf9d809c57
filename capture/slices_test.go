// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/pipeline"
)

// reader reads the frames of a camera as their lines arrive.
type reader struct {
	bench *bench
	log   lockedBuffer

	mu             sync.Mutex
	frames, early  int // emitted; and those whose first line was read before the last one was there
	whole, damaged int
	misled         int       // frames of which wrong lines were read; all of them are damaged
	at             time.Time // when the last whole one ended
	gap            time.Duration
}

func (r *reader) read(t *testing.T, f *pipeline.Frame) {
	defer f.Release()
	ctx, sensor := t.Context(), r.bench.sensor
	height, stride := f.Format.Height, f.Format.Stride
	var want []byte
	wrong := false
	for y := 0; y < height; {
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
	r.ended(t, f, f.WaitWhole(ctx), wrong)
}

func (r *reader) begun(f *pipeline.Frame, lines int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.frames++; lines < f.Format.Height {
		r.early++
	}
}

func (r *reader) ended(t *testing.T, f *pipeline.Frame, err error, wrong bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if wrong {
		r.misled++
	}
	if err != nil {
		r.damaged++
		return
	}
	now := time.Now()
	if wrong {
		t.Errorf("frame %d ended whole, and its lines were wrong", f.Sequence)
	}
	if f.Times.Captured.IsZero() || f.Times.ExposureEnd.Before(f.Times.ExposureStart) {
		t.Errorf("frame %d has times %+v", f.Sequence, f.Times)
	}
	r.whole, r.gap, r.at = r.whole+1, max(r.gap, now.Sub(r.at)), now
}

// readSlices streams for d of the bubble's time from a camera whose lines come over most of its period.
func readSlices(t *testing.T, plan model.FaultPlan, poll bool, d time.Duration) (*reader, error) {
	const lines = 320
	b := newBenchOf(t, plan, nil, model.SensorConfig{
		Width: 64, Height: lines, Period: faultyRate.Period(), Exposure: 2 * time.Millisecond, Readout: faultyRate.Period() * 3 / 4,
	})
	b.card.Poll = poll
	r := &reader{bench: b, at: time.Now()}
	c, err := NewFPGACamera(FPGAConfig{
		Card: b.card, Width: 64, Height: lines, Pixel: pipeline.RGGB10, Slots: 6, Rate: faultyRate, SliceLines: 32,
		GiveUp: 5 * time.Second, Logger: slog.New(slog.NewTextHandler(&r.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var readers sync.WaitGroup
	err = c.Run(ctx, func(f *pipeline.Frame) { readers.Go(func() { r.read(t, f) }) })
	readers.Wait() // each frame ends before Run does
	if closed := c.Close(); closed != nil && !expected(closed) {
		t.Errorf("close: %v", closed)
	}
	return r, err
}

// TestFramesAreReadWhileTheyArrive, with interrupts and in poll mode: all of them are right.
func TestFramesAreReadWhileTheyArrive(t *testing.T) {
	for _, poll := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r, err := readSlices(t, model.FaultPlan{}, poll, 3*time.Second)
			if err != nil || r.whole < 140 || r.early < r.whole || r.misled > 0 || r.damaged > 0 {
				t.Errorf("poll %t: %d whole of %d, %d early, %d damaged, %d misled: %v", poll, r.whole, r.frames, r.early, r.damaged, r.misled, err)
			}
		})
	}
}

// TestFaultsInSlices: whatever fault happens inside a frame that is being read, the frame ends, and a wrong one never ends whole.
func TestFaultsInSlices(t *testing.T) {
	for _, id := range model.FaultIDs() {
		for _, poll := range []bool{false, true} {
			if poll && id == model.F7 {
				continue // is of interrupts
			}
			t.Run(fmt.Sprintf("%v/%t", id, poll), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { checkFaultInSlices(t, id, poll) })
			})
		}
	}
}

func checkFaultInSlices(t *testing.T, id model.FaultID, poll bool) {
	want := faultCases[id]
	rates := map[model.FaultID]float64{id: 0.1}
	if id == model.F2 || id == model.F3 {
		rates[model.F8] = 0.02 // the engine is stopped after it, and that is their occasion
	}
	r, err := readSlices(t, model.FaultPlan{Seed: 1, Rates: rates}, poll, 10*time.Second)
	hits := r.bench.device.FaultCounts()[id]
	t.Logf("%d faults, %d frames, %d early, %d whole, %d damaged, %d misled, silence %v, %v", hits, r.frames, r.early, r.whole, r.damaged, r.misled, r.gap, err)
	if hits == 0 {
		t.Error("the fault did not happen")
	}
	if log := r.log.String(); hits > 0 && want.says != "" && !strings.Contains(log, want.says) {
		t.Errorf("the log does not say %q:\n%s", want.says, log)
	}
	if err != nil && !want.ends {
		t.Errorf("the stream ended: %v", err)
	}
	if r.gap > want.silence && err == nil {
		t.Errorf("silent for %v, want at most %v:\n%s", r.gap, want.silence, r.log.String())
	}
	if r.misled > r.damaged {
		t.Errorf("%d frames were wrong, %d were damaged", r.misled, r.damaged)
	}
}

// TestARevocationEndsAFrameThatFills: whoever waits for its lines gets an error at once.
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
