// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// follower is a stage behind another stage. It takes UYVY and makes the same formats as copier.
type follower struct {
	copier
	wants Format
	holds int
}

func (f *follower) Needs(Format) (StageNeeds, error) {
	return StageNeeds{From: f.wants, Holds: f.holds}, nil
}

// chain returns a rig with two more stages behind the isp, one behind the other.
func chain(t testing.TB, cam *camera, st *copier, first, second *follower) *rig {
	r := newRig(t, cam, st)
	for name, add := range map[string]error{
		"first": r.AddStage("first", first, "isp", 2), "second": r.AddStage("second", second, "first", 2),
	} {
		if add != nil {
			t.Fatalf("%s: %v", name, add)
		}
	}
	return r
}

// The counts of outputs anywhere along a chain of stages add up, and frames lost by an earlier stage are listed under
// that stage's name.
func TestStagesBehindStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := func(last uint64) func(uint64) error {
			return func(seq uint64) error {
				if seq%10 == last {
					return errors.New("bad frame")
				}
				return nil
			}
		}
		first := &follower{copier: copier{fail: bad(3), fence: late{d: 3 * time.Millisecond}}, wants: uyvy()}
		second := &follower{copier: copier{fail: bad(5)}, wants: i420()}
		r := chain(t, newCamera(t, 12, 300, 10*time.Millisecond), &copier{fail: bad(1), fence: late{d: 2 * time.Millisecond}}, first, second)
		views := []*viewer{{}, {}, {}, {took: 35 * time.Millisecond}}
		outs := []*Output{
			r.attach(t, OutputConfig{Name: "isps", Sink: views[0], From: "isp", Format: uyvy()}),
			r.attach(t, OutputConfig{Name: "firsts", Sink: views[1], From: "first", Format: uyvy()}),
			r.attach(t, OutputConfig{Name: "seconds", Sink: views[2], From: "second", Format: uyvy()}),
			r.attach(t, OutputConfig{Name: "slow", Sink: views[3], From: "second", Format: i420()}),
		}
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, want := range []map[string]uint64{
			{"isp/stage": 30},
			{"isp/stage": 30, "first/stage": 30},
			{"isp/stage": 30, "first/stage": 30, "second/stage": 30},
			{"isp/stage": 30, "first/stage": 30, "second/stage": 30},
		} {
			s := outs[i].Stats()
			balance(t, s)
			if s.Captured != 300 {
				t.Errorf("%s: captured %d, want 300", s.Name, s.Captured)
			}
			for why, n := range want {
				if s.Dropped[why] != n {
					t.Errorf("%s: %v, want %d by %s", s.Name, s.Dropped, n, why)
				}
			}
		}
		for i, n := range []int{270, 240, 210} {
			views[i].check(t, outs[i].Stats().Name, n)
		}
		if s := outs[3].Stats(); s.Dropped["slow/queue"] == 0 {
			t.Errorf("slow: %+v", s)
		}
	})
}

// A stage that is slower than the one before it loses its own frames, but none of any other output. It drops frames
// whose fence failed in the stage before it. A stage that never finishes is cancelled, and delays nobody.
func TestSlowStageBehindAStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &follower{copier: copier{took: 35 * time.Millisecond}, wants: uyvy(), holds: 4}
		stuck := &follower{copier: copier{fence: late{d: time.Hour}}, wants: uyvy()}
		r := chain(t, newCamera(t, 12, 200, 10*time.Millisecond), &copier{fence: late{d: 2 * time.Millisecond}}, slow, stuck)
		quick := &viewer{}
		oq := r.attach(t, OutputConfig{Name: "quick", Sink: quick, From: "isp", Format: uyvy()})
		os := r.attach(t, OutputConfig{Name: "slowed", Sink: &viewer{}, From: "first", Format: uyvy()})
		ot := r.attach(t, OutputConfig{Name: "never", Sink: &viewer{}, From: "second", Format: uyvy()})
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		quick.check(t, "quick", 200)
		for _, o := range []*Output{oq, os, ot} {
			s := o.Stats()
			balance(t, s)
			if s.Captured != 200 {
				t.Errorf("%s: captured %d, want 200", s.Name, s.Captured)
			}
		}
		if s := os.Stats(); s.Dropped["first/queue"] == 0 || s.Delivered < 50 {
			t.Errorf("slowed: %+v", s)
		}
		if s := ot.Stats(); s.Delivered != 0 {
			t.Errorf("never: %+v", s)
		}
	})
}

func TestFailedFenceInFrontOfAStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newCamera(t, 8, 50, 10*time.Millisecond), &copier{fence: failure{errors.New("kernel failed")}})
		if err := r.AddStage("next", &follower{wants: uyvy()}, "isp", 2); err != nil {
			t.Fatal(err)
		}
		o := r.attach(t, OutputConfig{Name: "v", Sink: &viewer{}, From: "next", Format: uyvy()})
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := o.Stats()
		balance(t, s)
		if s.Dropped["next/fence"] != 50 {
			t.Errorf("%+v", s)
		}
	})
}

func TestRefusedBehindAStage(t *testing.T) {
	r := newRig(t, newCamera(t, 8, 1, time.Millisecond), &copier{})
	rgb := uyvy()
	rgb.Pixel, rgb.Stride = RGB24, 48
	for _, c := range []struct {
		st   Stage
		from string
		is   error
		says string
	}{
		{&copier{}, "isp", ErrNegotiation, "names no format"},
		{&follower{wants: rgb}, "isp", errPlan, "stage x: stage isp: cannot make that"},
		{&follower{wants: uyvy()}, "nobody", ErrName, `reads from "nobody"`},
	} {
		if err := r.AddStage("x", c.st, c.from, 1); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want %v with %q", err, c.is, c.says)
		}
	}
	if n := r.heap.open.Load(); n != 0 {
		t.Errorf("%d slots for stages that were refused", n)
	}
	if err := r.AddStage("x", &follower{wants: uyvy(), holds: 3}, "isp", 2); err != nil {
		t.Fatal(err)
	}
	if n := r.heap.open.Load(); n != 7 { // two waiting, three held, two being written
		t.Errorf("%d slots, want 7", n)
	}
}
