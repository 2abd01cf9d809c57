// SPDX-License-Identifier: Apache-2.0

package loopback

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/device"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/fpga/xdma"
	"github.com/tegracast/tegracast/tegra/tegrasim"
)

// loopbackFaults lists the errors that a validation run may report under each fault. An empty entry means that it must
// succeed.
var loopbackFaults = map[model.FaultID]struct {
	says  []string // one of them, if the run fails
	fatal bool     // the device may not come back
}{
	model.F1:  {says: []string{"deadline exceeded"}},
	model.F2:  {},
	model.F3:  {says: []string{"channel is busy"}, fatal: true},
	model.F4:  {says: []string{"all ones", "reset while it was in use"}, fatal: true},
	model.F5:  {says: []string{"magic_stopped"}},
	model.F6:  {}, // poll mode and streams only
	model.F7:  {},
	model.F8:  {}, // streams only
	model.F9:  {}, // streams only
	model.F10: {says: []string{"read_error", "the SMMU refused"}},
	model.F11: {says: []string{"revoked", "read_error", "the SMMU refused"}},
	model.F12: {says: []string{"reset while it was in use", "reset state"}},
}

// TestFaultsInLoopback checks that a validation run under faults either copies every byte correctly or ends with the
// right error in time, and that the next run on the same device works.
func TestFaultsInLoopback(t *testing.T) {
	for _, id := range model.FaultIDs() {
		for _, rate := range []float64{0.01, 0.1} {
			for seed := range uint64(3) {
				t.Run(fmt.Sprintf("%v/%g/%d", id, rate, seed), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { checkLoopback(t, id, rate, seed) })
				})
			}
		}
	}
}

func checkLoopback(t *testing.T, id model.FaultID, rate float64, seed uint64) {
	e := terminal.Env{Out: io.Discard, Err: io.Discard, Log: slog.New(slog.DiscardHandler)}
	plan := model.FaultPlan{Seed: seed, Rates: map[model.FaultID]float64{id: rate}}
	m, err := device.NewModel(cudahost.Config{Backend: "host", Logger: e.Log}, seed, func(sim *tegrasim.Sim) model.Config {
		cfg := model.Loopback(sim)
		plan.Revoke = func() { sim.InvalidateAny(seed) }
		cfg.Faults = plan
		return cfg
	})
	if err != nil {
		t.Fatal(err)
	}
	failures, right := 0, 0
	for range 20 {
		began := time.Now()
		r, err := validate(t.Context(), e, m, Options{Size: 150000, Count: 1, Direction: "both", Limit: 5 * time.Second, Card: DefaultCard()})
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("a run took %v", took)
		}
		switch {
		case err == nil && r.Wrong == 0:
			right++
		default:
			failures++
			checkFailure(t, id, r, err)
		}
		if g, fenced := m.Sim.Fenced(); fenced {
			if err := m.Sim.Resume(g); err != nil {
				t.Error(err)
			}
		}
	}
	t.Logf("%d runs right, %d failed", right, failures)
	if right == 0 && !loopbackFaults[id].fatal {
		t.Error("no run was right")
	}
	if err := m.Close(); err != nil { // fails if pins or descriptors were not released
		t.Errorf("close: %v", err)
	}
}

func checkFailure(t *testing.T, id model.FaultID, r Result, err error) {
	t.Helper()
	if err == nil {
		t.Errorf("wrong bytes (%s) and no fault was named", r.Mismatch)
		return
	}
	for _, s := range loopbackFaults[id].says {
		if strings.Contains(err.Error(), s) {
			return
		}
	}
	if loopbackFaults[id].fatal && (errors.Is(err, xdma.ErrGone) || errors.Is(err, xdma.ErrNotFound)) {
		return
	}
	t.Errorf("failed with %v", err)
}
