// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"strings"
	"testing"
)

func TestFaultTexts(t *testing.T) {
	for i, id := range FaultIDs() {
		if got, err := ParseFaultID(id.String()); err != nil || got != FaultID(i+1) {
			t.Errorf("%v: %v, %v", id, got, err)
		}
	}
	if id, rate, err := ParseFault("F3:0.01"); id != F3 || rate != 0.01 || err != nil {
		t.Errorf("%v %v %v", id, rate, err)
	}
	for text, says := range map[string]string{
		"": "want F1 to F12", "F0": "want F1", "F13:1": "want F1", "f1": "want F1", "F01": "want F1", "F+1:0": "want F1",
		"F1": "like F1:0.01", "F1:": "like F1", "F1:2": "from 0 to 1", "F1:-0.1": "from 0 to 1", "F1:NaN": "from 0 to 1",
	} {
		if _, _, err := ParseFault(text); !errors.Is(err, ErrFault) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, plan := range []FaultPlan{
		{Rates: map[FaultID]float64{0: 0.1}}, {Rates: map[FaultID]float64{F1: 1.1}}, {Rates: map[FaultID]float64{F11: 1}}, {At: -BeatBytes}, {At: 8},
	} {
		cfg := Loopback(&host{})
		cfg.Faults = plan
		if _, err := New(cfg); !errors.Is(err, ErrFault) {
			t.Errorf("%+v: %v", plan, err)
		}
	}
	h := newHost(t, Loopback)
	if err := h.d.Inject(13); !errors.Is(err, ErrFault) {
		t.Error(err)
	}
	if err := h.d.Inject(F11); !errors.Is(err, ErrFault) {
		t.Error(err)
	}
}

func FuzzParseFault(f *testing.F) {
	for _, s := range []string{"F1:0.5", "F12:1", "F3", ":", "F1:1e-400", "F18446744073709551617:0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, rate, err := ParseFault(s)
		if err == nil && (id < F1 || id > F12 || !(rate >= 0 && rate <= 1)) || err != nil && !errors.Is(err, ErrFault) {
			t.Errorf("%q: %v, %v, %v", s, id, rate, err)
		}
	})
}
