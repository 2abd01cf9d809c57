// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// lost is a DeviceError.
type lost struct{ sticky bool }

func (l lost) Error() string { return "the device" }

func (l lost) Sticky() bool { return l.sticky }

// failure is a fence of work that fails.
type failure struct{ err error }

func (f failure) Wait(context.Context) error { return f.err }

// TestDeviceLost checks that a lost device ends the graph with its error, whichever part encounters it, and that an
// error of a usable device does not.
func TestDeviceLost(t *testing.T) {
	for _, sticky := range []bool{true, false} {
		err := fmt.Errorf("kernel: %w", lost{sticky})
		for name, r := range map[string]struct {
			stage *copier
			sink  *viewer
		}{
			"stage":  {&copier{fail: func(seq uint64) error { return map[bool]error{true: err}[seq == 5] }}, &viewer{}},
			"fence":  {&copier{fence: failure{err}}, &viewer{}},
			"output": {&copier{}, &viewer{fail: err}},
		} {
			t.Run(fmt.Sprintf("%s, sticky %v", name, sticky), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := newRig(t, newCamera(t, 8, 50, time.Millisecond), r.stage)
					g.attach(t, OutputConfig{Name: "out", Sink: r.sink, Format: uyvy()})
					got := g.Run(t.Context())
					if (got != nil) != sticky || sticky && !errors.Is(got, lost{true}) {
						t.Errorf("the graph ended with %v", got)
					}
				})
			})
		}
	}
}

// The error of a usable device does not hide that of a lost one.
func TestDeviceLostAmongOthers(t *testing.T) {
	again, gone := lost{false}, lost{true}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{again, false},
		{gone, true},
		{errors.New("the network"), false},
		{errors.Join(again, fmt.Errorf("stage: %w", gone)), true},
		{fmt.Errorf("%w, then %w", again, gone), true},
		{fmt.Errorf("output: %w", errors.Join(again, errors.New("the network"))), false},
	} {
		if got := DeviceLost(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
