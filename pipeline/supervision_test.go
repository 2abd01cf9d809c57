// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errDisk = errors.New("the disk is full")

// counter counts the frames that a stage processes.
type counter struct {
	copier
	from Format // format to read from another stage
	n    atomic.Int64
}

func (c *counter) Needs(Format) (StageNeeds, error) { return StageNeeds{From: c.from}, nil }

func (c *counter) Process(ctx context.Context, in *Frame, outs []*Frame) error {
	c.n.Add(1)
	return c.copier.Process(ctx, in, outs)
}

// TestNothingIsMadeForAnOutputThatHasFailed checks that no stage before a failed output works for it, and that the
// output counts the frames it misses.
func TestNothingIsMadeForAnOutputThatHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGraph(GraphConfig{Allocator: &heap{}, Logger: slog.New(slog.DiscardHandler)})
		if err := g.AddSource("cam", newCamera(t, 8, 200, time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		first, second := &counter{}, &counter{from: uyvy()}
		if err := errors.Join(g.AddStage("first", first, "cam", 2), g.AddStage("second", second, "first", 2)); err != nil {
			t.Fatal(err)
		}
		o, err := g.Attach(OutputConfig{Name: "rec", Sink: &viewer{fail: errDisk}, From: "second", Format: i420()})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		st := o.Stats()
		balance(t, st)
		if a, b := first.n.Load(), second.n.Load(); a > 3 || b > 3 {
			t.Errorf("the stages worked on %d and %d frames for an output that failed after the first", a, b)
		}
		if st.State != Ended || st.Error != errDisk.Error() || st.Faults != 1 || st.Captured != 200 || st.Delivered != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// flaky is an output whose sinks fail at once and cannot be reopened until room is true.
type flaky struct {
	room   bool
	opened []time.Duration
	began  time.Time
	sink   *viewer // the most recent one
	needs  SinkNeeds
}

func (f *flaky) reopen(context.Context) (Sink, error) {
	f.opened = append(f.opened, time.Since(f.began).Truncate(100*time.Millisecond))
	if len(f.opened) == 2 {
		return nil, errDisk
	}
	f.sink = &viewer{needs: f.needs}
	if !f.room {
		f.sink.fail = errDisk
	}
	return f.sink, nil
}

// TestAFailedOutputIsOpenedAgain checks that a failed output is reopened with growing pauses, or at once on request,
// and logs one line per minute.
func TestAFailedOutputIsOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		g := NewGraph(GraphConfig{Allocator: &heap{}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err := g.AddSource("cam", newCamera(t, 8, 0, 10*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		f := &flaky{began: time.Now()}
		o, err := g.Attach(OutputConfig{Name: "rec", Sink: &viewer{fail: errDisk}, From: "cam", Reopen: f.reopen})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- g.Run(ctx) }()
		time.Sleep(100 * time.Millisecond)
		first := o.Stats()
		if first.State != Retrying || first.Error != errDisk.Error() || first.Next.Sub(*first.Since) != FirstReopen || first.Waiting != 0 {
			t.Errorf("%+v", first)
		}
		time.Sleep(3*time.Minute - 100*time.Millisecond)
		synctest.Wait()
		if n := strings.Count(log.String(), "output failed"); n != 3 {
			t.Errorf("%d lines in three minutes:\n%s", n, log.String())
		}
		if st := o.Stats(); st.State != Retrying || !st.Since.Equal(*first.Since) {
			t.Errorf("it has failed since %v: %+v", first.Since, st)
		}
		pause := FirstReopen
		for i := 1; i < len(f.opened); i++ {
			if d := f.opened[i] - f.opened[i-1]; d < min(2*pause, LastReopen)-time.Second || d > LastReopen+time.Second {
				t.Errorf("opened at %v", f.opened)
			}
			pause *= 2
		}
		f.room = true
		if !o.Retry() {
			t.Error("it has not failed")
		}
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		if st := o.Stats(); st.State != Running || st.Error != "" || st.Since != nil || st.Next != nil || st.Faults != uint64(len(f.opened)) || o.Retry() {
			t.Errorf("%+v", st)
		}
		if n := len(f.sink.seen); n < 990 {
			t.Errorf("%d frames of 10 s", n)
		}
		if !strings.HasSuffix(strings.TrimSpace(log.String()), `msg="output was opened again" output=rec`) {
			t.Errorf("the log:\n%s", log.String())
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		st := o.Stats()
		if balance(t, st); st.State != Ended || st.Error != "" || st.Captured != g.Stats().Sources[0].Captured {
			t.Errorf("%+v", st)
		}
	})
}

// TestAnOutputThatRetriesEnds checks that a retrying output ends when it is detached, and when its source has ended,
// both while it waits and while it is being opened.
func TestAnOutputThatRetriesEnds(t *testing.T) {
	for _, opening := range []bool{false, true} {
		for _, detach := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, newCamera(t, 8, 200, 10*time.Millisecond), &copier{})
				o := r.attach(t, OutputConfig{
					Name: "rec", Sink: &viewer{fail: errDisk}, Format: uyvy(),
					Reopen: func(ctx context.Context) (Sink, error) {
						if opening {
							<-ctx.Done()
						}
						return nil, errDisk
					},
				})
				ended := make(chan error, 1)
				go func() { ended <- r.Run(t.Context()) }()
				time.Sleep(time.Second)
				begin := time.Now()
				if detach {
					balance(t, o.Detach(t.Context()))
				} else if err := <-ended; err != nil {
					t.Error(err)
				}
				if d := time.Since(begin); detach && d > 0 || d > 1100*time.Millisecond {
					t.Errorf("opening %v, detached %v: it took %v", opening, detach, d)
				}
				if st := o.Stats(); st.State != Ended || st.Error != errDisk.Error() {
					t.Errorf("%+v", st)
				}
				if detach {
					<-ended
				}
			})
		}
	}
}

// TestAnOutputThatIsOpenedAgainKnowsItsSlots checks that a reopened output knows all slots, including those added while
// it had failed.
func TestAnOutputThatIsOpenedAgainKnowsItsSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newCamera(t, 8, 400, 10*time.Millisecond), &copier{})
		known, failed := map[int]bool{}, false
		f := &flaky{room: true, began: time.Now()}
		f.needs.UseSlot = func(i int, _ Slot) error { known[i] = true; return nil }
		first := &viewer{fail: errDisk, needs: SinkNeeds{UseSlot: func(int, Slot) error {
			if failed {
				return ErrClosed
			}
			return nil
		}}}
		o := r.attach(t, OutputConfig{Name: "fpga", Sink: first, Format: uyvy(), Reopen: f.reopen})
		ended := make(chan error, 1)
		go func() { ended <- r.Run(t.Context()) }()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		failed = true
		r.attach(t, OutputConfig{Name: "other", Sink: &viewer{}, Format: uyvy(), Depth: 4})
		time.Sleep(time.Second)
		synctest.Wait()
		r.attach(t, OutputConfig{Name: "third", Sink: &viewer{}, Format: uyvy(), Depth: 4})
		if n := r.stages[0].ports()[0].pool.Len(); len(known) != n {
			t.Errorf("it knows %d of %d slots", len(known), n)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if st := o.Stats(); st.State != Ended || st.Error != "" || st.Delivered < 300 {
			t.Errorf("%+v", st)
		}
	})
}

// TestASourceThatHasEnded checks that a source that came to its own end is reported as ended, and one that was stopped is
// not.
func TestASourceThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, finite := range []bool{true, false} {
			frames := 0
			if finite {
				frames = 10
			}
			r := newRig(t, newCamera(t, 8, frames, 10*time.Millisecond), &copier{})
			o := r.attach(t, OutputConfig{Name: "v", Sink: &viewer{}, Format: uyvy()})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := r.Run(ctx); err != nil {
				t.Fatal(err)
			}
			if st := r.Stats(); st.Sources[0].Ended != finite || o.Stats().State != Ended {
				t.Errorf("finite: %v: %+v", finite, st)
			}
		}
	})
}

// TestResultsOfAFrameThatJustBecameWhole checks that the results are inherited once.
func TestResultsOfAFrameThatJustBecameWhole(t *testing.T) {
	cam := newCamera(t, 8, 0, 0)
	r := newRig(t, cam, &copier{})
	n := r.stages[0]
	if _, err := n.port(uyvy()); err != nil {
		t.Fatal(err)
	}
	in, out := cam.pool.Get(), NewPool("out", uyvy(), []Slot{{Bytes: make([]byte, uyvy().Size())}}, nil).Get()
	in.Results = []Result{{Stage: "motion"}}
	out.Retain()
	n.stepFilling(t.Context(), in, n.ports(), []*Frame{out}) // the frame was filling a moment ago
	if len(out.Results) != 1 {
		t.Errorf("%d results of one: %+v", len(out.Results), out.Results)
	}
	out.Release()
}
