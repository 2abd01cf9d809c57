// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/pipeline"
)

// TestABareStreamIsReadWhileItArrives checks that its frames are correct, and flagged as unverified because there is no
// checksum.
func TestABareStreamIsReadWhileItArrives(t *testing.T) {
	for _, poll := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r, err := readSlicesOf(t, model.FaultPlan{}, poll, 320, true, func(*reader) { time.Sleep(3 * time.Second) })
			if err != nil || r.whole < 140 || r.early < r.whole || r.misled > 0 || r.damaged > 0 || r.flags != pipeline.FlagUnverified {
				t.Errorf("poll %t: %d whole of %d, %d early, %d damaged, %d misled, flags %b: %v",
					poll, r.whole, r.frames, r.early, r.damaged, r.misled, r.flags, err)
			}
		})
	}
}

// TestFaultsOnABareStreamInSlices tests every fault except a stray burst, which only a checksum can detect.
func TestFaultsOnABareStreamInSlices(t *testing.T) {
	for _, id := range model.FaultIDs() {
		if id == model.F10 {
			continue
		}
		t.Run(fmt.Sprint(id), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { checkBareFaultInSlices(t, id) })
		})
	}
}

func checkBareFaultInSlices(t *testing.T, id model.FaultID) {
	want := faultCases[id]
	rates := map[model.FaultID]float64{id: 0.03}
	if id == model.F2 || id == model.F3 {
		rates[model.F8] = 0.02 // the fault needs a stop of the engine, which F8 causes
	}
	plan := model.FaultPlan{Rates: rates}
	r, err := readSlicesOf(t, plan, false, 320, true, func(*reader) { time.Sleep(20 * time.Second) })
	hits := r.bench.device.FaultCounts()[id]
	t.Logf("%d faults, %d frames, %d early, %d whole, %d damaged, %d misled, silence %v, %v",
		hits, r.frames, r.early, r.whole, r.damaged, r.misled, r.gap, err)
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
}
