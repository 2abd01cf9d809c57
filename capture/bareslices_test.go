// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/pipeline"
)

// readBareSlices streams for d of the bubble's time from a bare stream whose lines come over most of its period, and returns what
// was read, the flags that all whole frames had, and whether sequence numbers only grew.
func readBareSlices(t *testing.T, plan model.FaultPlan, poll bool, d time.Duration) (r *reader, flags pipeline.FrameFlags, err error) {
	const lines = 320
	b := newBenchOf(t, plan, nil, model.SensorConfig{
		Width: 64, Height: lines, Period: faultyRate.Period(), Readout: faultyRate.Period() * 3 / 4, Bare: true,
	})
	b.card.Poll = poll
	r = &reader{bench: b, at: time.Now()}
	c, err := NewFPGACamera(FPGAConfig{
		Card: b.card, Width: 64, Height: lines, Pixel: pipeline.RGGB10, Slots: 6, Rate: faultyRate, SliceLines: 32, Bare: true,
		GiveUp: 5 * time.Second, Logger: slog.New(slog.NewTextHandler(&r.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	flags = ^pipeline.FrameFlags(0)
	next := uint64(0)
	var readers sync.WaitGroup
	err = c.Run(ctx, func(f *pipeline.Frame) {
		if f.Sequence < next {
			t.Errorf("frame %d after frame %d", f.Sequence, next-1)
		}
		next = f.Sequence + 1
		f.Retain()
		readers.Go(func() {
			defer f.Release()
			if r.read(t, f); f.WaitWhole(ctx) == nil {
				r.mu.Lock()
				defer r.mu.Unlock()
				flags &= f.Flags
			}
		})
	})
	readers.Wait()
	if closed := c.Close(); closed != nil && !expected(closed) {
		t.Errorf("close: %v", closed)
	}
	return r, flags, err
}

// TestABareStreamIsReadWhileItArrives: its frames are right, and marked, since no checksum proves it.
func TestABareStreamIsReadWhileItArrives(t *testing.T) {
	for _, poll := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r, flags, err := readBareSlices(t, model.FaultPlan{}, poll, 3*time.Second)
			if err != nil || r.whole < 140 || r.early < r.whole || r.misled > 0 || r.damaged > 0 || flags != pipeline.FlagUnverified {
				t.Errorf("poll %t: %d whole of %d, %d early, %d damaged, %d misled, flags %b: %v",
					poll, r.whole, r.frames, r.early, r.damaged, r.misled, flags, err)
			}
		})
	}
}

// TestFaultsOnABareStreamInSlices: every fault but a stray burst, of which only a checksum tells.
func TestFaultsOnABareStreamInSlices(t *testing.T) {
	for _, id := range model.FaultIDs() {
		if id == model.F10 {
			continue
		}
		t.Run(fmt.Sprint(id), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				want := faultCases[id]
				rates := map[model.FaultID]float64{id: 0.1}
				if id == model.F2 || id == model.F3 {
					rates[model.F8] = 0.02 // the engine is stopped after it, and that is their occasion
				}
				r, _, err := readBareSlices(t, model.FaultPlan{Seed: 1, Rates: rates}, false, 10*time.Second)
				hits := r.bench.device.FaultCounts()[id]
				t.Logf("%d faults, %d frames, %d early, %d whole, %d damaged, %d misled, silence %v, %v", hits, r.frames, r.early, r.whole, r.damaged, r.misled, r.gap, err)
				switch {
				case hits == 0:
					t.Error("the fault did not happen")
				case err != nil && !want.ends:
					t.Errorf("the stream ended: %v", err)
				case err == nil && r.gap > want.silence:
					t.Errorf("silent for %v, want at most %v:\n%s", r.gap, want.silence, r.log.String())
				case r.misled > r.damaged:
					t.Errorf("%d frames were wrong, %d were damaged", r.misled, r.damaged)
				}
			})
		})
	}
}
