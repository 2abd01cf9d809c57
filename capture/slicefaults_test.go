// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
)

// TestFaultsInSlices checks that a frame that is being read ends, whatever fault occurs in it, and that a wrong frame
// never ends as whole.
func TestFaultsInSlices(t *testing.T) {
	for _, id := range model.FaultIDs() {
		for _, poll := range []bool{false, true} {
			if poll && id == model.F7 {
				continue // a fault of interrupts
			}
			t.Run(fmt.Sprintf("%v/%t", id, poll), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { checkFaultInSlices(t, id, poll) })
			})
		}
	}
}

func checkFaultInSlices(t *testing.T, id model.FaultID, poll bool) {
	rates := map[model.FaultID]float64{id: 0.1}
	if id == model.F2 || id == model.F3 {
		rates[model.F8] = 0.02 // the fault needs a stop of the engine, which F8 causes
	}
	r, err := readSlices(t, model.FaultPlan{Seed: 1, Rates: rates}, poll, 320, func(*reader) { time.Sleep(5 * time.Second) })
	if log, says := r.log.String(), faultCases[id].says; !strings.Contains(log, says) {
		t.Errorf("the log does not say %q:\n%s", says, log)
	}
	r.checkFault(id, faultCases[id].silence, err)
}

func (r *reader) checkFault(id model.FaultID, silence time.Duration, err error) {
	r.t.Helper()
	hits := r.bench.device.FaultCounts()[id]
	r.t.Logf("%d faults, %d frames, %d early, %d whole, %d damaged, %d misled, silence %v, %v", hits, r.frames, r.early, r.whole, r.damaged, r.misled, r.gap, err)
	if hits == 0 {
		r.t.Error("the fault did not happen")
	}
	if err != nil && !faultCases[id].ends {
		r.t.Errorf("the stream ended: %v", err)
	}
	if r.gap > silence && err == nil {
		r.t.Errorf("silent for %v, want at most %v:\n%s", r.gap, silence, r.log.String())
	}
	if r.misled > r.damaged {
		r.t.Errorf("%d frames were wrong, %d were damaged", r.misled, r.damaged)
	}
}

// TestFaultsAtEverySlice uses 64 lines of 128 bytes in eight slices.
const (
	faultyLines = 64
	sliceBytes  = faultyLines * 128 / slicesAFrame
)

// TestFaultsAtEverySlice injects each fault in the middle of each slice of a frame, and in its trailer, four times
// each, so that faults with variants show each variant. No wrong frame ends as whole, every frame is counted, and the
// stream continues.
func TestFaultsAtEverySlice(t *testing.T) {
	for _, id := range model.FaultIDs() {
		for slice := range slicesAFrame + 1 {
			if slice == slicesAFrame && (id == model.F5 || id == model.F7) {
				continue // nothing is fetched there, and one message announces both the last slice and the trailer
			}
			for _, poll := range []bool{false, true} {
				if poll && id == model.F7 {
					continue
				}
				t.Run(fmt.Sprintf("%v/%d/%t", id, slice, poll), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { checkFaultAt(t, id, slice, poll) })
				})
			}
		}
	}
}

func checkFaultAt(t *testing.T, id model.FaultID, slice int, poll bool) {
	at := slice*sliceBytes + sliceBytes/2
	if slice == slicesAFrame {
		at = slice*sliceBytes + fpga.TrailerSize/2
	}
	silence, by := faultCases[id].silence, model.FaultID(0)
	switch id {
	case model.F2, model.F3: // occurs when the engine is stopped after a hang
		by = model.F1
	case model.F9: // one of its variants occurs when the engine is started again
		by = model.F5
	}
	if by > 0 {
		silence = max(silence, faultCases[by].silence)
	}
	r, err := readSlices(t, model.FaultPlan{Seed: 1, At: at}, poll, faultyLines, func(r *reader) { r.suffer(id, by) })
	r.checkFault(id, silence, err)
	for _, lines := range r.reached {
		if cuts := id == model.F1 || id == model.F11 || id == model.F12; cuts && slice < slicesAFrame && lines != slice*faultyLines/slicesAFrame {
			t.Errorf("a frame was cut after %d lines", lines)
		}
	}
}

// suffer makes a fault occur four times, and waits each time until the stream has recovered. by is the fault after
// which it occurs, if it does not occur on its own.
func (r *reader) suffer(id, by model.FaultID) {
	inject := func(id model.FaultID) {
		if err := r.bench.device.Inject(id); err != nil {
			r.t.Error(err)
		}
	}
	for n := uint64(0); r.recovers() && n < 4; n++ {
		inject(id)
		for i := 0; r.bench.device.FaultCounts()[id] == n; i++ {
			time.Sleep(faultyRate.Period())
			if by > 0 && i == 10 {
				inject(by)
			}
			if i == 200 {
				r.t.Errorf("it has happened %d times, and does not again", n)
				return
			}
		}
	}
}

// recovers waits for five whole frames.
func (r *reader) recovers() bool {
	want := r.wholes() + 5
	for range 200 {
		if time.Sleep(faultyRate.Period()); r.wholes() >= want {
			return true
		}
	}
	return false
}

func (r *reader) wholes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.whole
}
