// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"testing"
	"time"

	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/pipeline"
)

// Exposure and gain change while frames are coming, from the frame that SetExposure returns, and they are kept after a
// reset of the card.
func TestFPGACameraExposure(t *testing.T) {
	changesExposure(t, newBench(t, 64, 48, pipeline.Rate{Num: 200, Den: 1}), 2)
}

// changesExposure also changes the gain, unless gain is 0.
func changesExposure(t *testing.T, b *bench, gain float64) {
	c := b.open(t, 4)
	if e, g, err := c.Exposure(); e != b.sensor.Config().Exposure || g != 1 || err != nil {
		t.Errorf("at first %v, %v, %v", e, g, err)
	}
	const short = 500 * time.Microsecond
	from, reset, after := ^uint64(0), false, 0
	collect(t, c, 150, func(f *pipeline.Frame) {
		defer f.Release()
		exposed := f.Times.ExposureEnd.Sub(f.Times.ExposureStart)
		switch {
		case f.Sequence >= from && (exposed < short*99/100 || exposed > short*101/100):
			t.Errorf("frame %d: exposed for %v, from frame %d on it should be %v", f.Sequence, exposed, from, short)
		case f.Sequence >= from:
			after++
		}
		var err error
		if f.Sequence > 20 && from == ^uint64(0) {
			if from, err = c.SetExposure(short, gain); err != nil || from <= f.Sequence || from > f.Sequence+2000 {
				t.Errorf("at frame %d: from frame %d, %v", f.Sequence, from, err)
			}
		}
		if f.Sequence > 80 && !reset {
			reset = true
			if err := b.device.Inject(model.F12); err != nil {
				t.Error(err)
			}
		}
	})
	if e, g, err := c.Exposure(); e != short || g != max(gain, 1) || err != nil {
		t.Errorf("after a reset %v, %v, %v", e, g, err)
	}
	if after < 60 || c.states.counters[Reopening].Load() == 0 {
		t.Errorf("%d frames exposed as asked for, opened again %d times", after, c.states.counters[Reopening].Load())
	}
	if _, err := c.SetExposure(time.Second, 0); err == nil {
		t.Error("an exposure longer than the period is taken")
	}
	if e, g := c.Adjustable(); !e || g != (gain > 0) {
		t.Errorf("adjustable: %v, %v", e, g)
	}
}
