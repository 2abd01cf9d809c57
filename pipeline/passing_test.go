// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// passer is a stage that passes frames on, each after a while. It has at most holds frames at a time.
type passer struct {
	wants Format
	holds int
	took  func(seq uint64) (time.Duration, error)
	await func(context.Context)
}

func (p *passer) Needs(Format) (StageNeeds, error) {
	return StageNeeds{From: p.wants, Holds: p.holds, Passes: p.holds, Await: p.await}, nil
}

func (p *passer) Plan(Format, []Format) error { return nil }

func (p *passer) Process(_ context.Context, in *Frame, outs []*Frame) error {
	out := outs[0]
	if &out.Bytes[0] != &in.Bytes[0] || out.Slot() != in.Slot() {
		return errors.New("another memory")
	}
	d, err := p.took(in.Sequence)
	out.Ready = &passed{until: time.Now().Add(d), err: err, frame: out}
	return nil
}

// passed is the fence of a passer's frame.
type passed struct {
	until time.Time
	err   error
	frame *Frame
	once  sync.Once
}

func (f *passed) Wait(ctx context.Context) error {
	select {
	case <-time.After(time.Until(f.until)):
	case <-ctx.Done():
		return ctx.Err()
	}
	f.once.Do(func() {
		f.frame.Results = append(f.frame.Results, Result{Stage: "passer", Bins: []uint32{uint32(f.frame.Sequence)}})
	})
	return f.err
}

// resultsViewer is a viewer that checks that each frame has the passer's result.
type resultsViewer struct {
	viewer
	missing int
}

func (v *resultsViewer) Run(ctx context.Context, q *Queue) error {
	for {
		f, err := q.Next(ctx)
		if err != nil {
			return err
		}
		if len(f.Results) != 1 || f.Results[0].Bins[0] != uint32(f.Sequence) {
			v.missing++
		}
		v.seen = append(v.seen, f.Sequence)
		if f.Bytes[0] != byte(f.Sequence) {
			v.wrong++
		}
		q.Done(f)
	}
}

// pace takes 1 to 57 ms a frame, drops frames that end in 3, and fails on those that end in 7.
func pace(seq uint64) (time.Duration, error) {
	d := time.Duration(1+seq*31%57) * time.Millisecond
	switch seq % 10 {
	case 3:
		return d, ErrDropped
	case 7:
		return d, errors.New("bad frame")
	}
	return d, nil
}

// Frames that a stage passes on have the memory and the order of its input, and its results, behind a source and behind
// a stage. Books are exact, and the stage's other outputs lose nothing.
func TestPassedFrames(t *testing.T) {
	for _, from := range []string{"cam", "isp"} {
		synctest.Test(t, func(t *testing.T) {
			cam := newCamera(t, 40, 300, 10*time.Millisecond)
			r := newRig(t, cam, &copier{fence: late{d: time.Millisecond}})
			wants := Format{}
			if from == "isp" {
				wants = uyvy()
			}
			if err := r.AddStage("model", &passer{wants: wants, holds: 8, took: pace}, from, 2); err != nil {
				t.Fatal(err)
			}
			beside, behind, slow := &viewer{}, &resultsViewer{}, &resultsViewer{viewer: viewer{took: 25 * time.Millisecond}}
			ob := r.attach(t, OutputConfig{Name: "beside", Sink: beside, From: "isp", Format: uyvy()})
			oh := r.attach(t, OutputConfig{Name: "behind", Sink: behind, From: "model"})
			os := r.attach(t, OutputConfig{Name: "slow", Sink: slow, From: "model", Rate: Rate{20, 1}})
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			beside.check(t, "beside", 300)
			behind.check(t, "behind", 240)
			for _, o := range []*Output{ob, oh, os} {
				s := o.Stats()
				balance(t, s)
				if s.Captured != 300 {
					t.Errorf("%s from %s: captured %d, want 300", s.Name, from, s.Captured)
				}
			}
			if s := oh.Stats(); s.Dropped["model/stage"] != 60 || s.Drops() != 60 {
				t.Errorf("behind %s: %v, want 60 dropped by the stage", from, s.Dropped)
			}
			if behind.missing+slow.missing > 0 || len(slow.seen) < 50 {
				t.Errorf("from %s: %d and %d frames without their results, %d at the slow output", from, behind.missing, slow.missing, len(slow.seen))
			}
		})
	}
}

// The frames that outputs behind such a stage hold are in the memory of the source or stage before it, which must have
// enough slots for all of them.
func TestSlotsOfPassedFrames(t *testing.T) {
	r := newRig(t, newCamera(t, 17, 0, time.Hour), &copier{})
	for _, c := range []struct{ name, from string }{{"first", "cam"}, {"second", "isp"}, {"third", "second"}} {
		wants := uyvy()
		if c.from == "cam" {
			wants = Format{}
		}
		if err := r.AddStage(c.name, &passer{wants: wants, holds: 4}, c.from, 2); err != nil {
			t.Fatal(err)
		}
	}
	camera, isp := r.sources[0].out, r.stages[0]
	before := camera.depth
	one := r.attach(t, OutputConfig{Name: "one", Sink: &viewer{needs: SinkNeeds{Holds: 3}}, From: "first"})
	if got := camera.depth - before; got != 5 {
		t.Errorf("an output behind a stage that passes frames on reserves %d frames of the source, want 5", got)
	}
	if _, err := r.Attach(OutputConfig{Name: "two", Sink: &viewer{needs: SinkNeeds{Holds: 3}}, From: "first"}); err == nil || !strings.Contains(err.Error(), "slots") {
		t.Errorf("a second one: %v, want an error about slots", err)
	}
	one.Detach(t.Context())
	if camera.depth != before {
		t.Errorf("%d frames stay reserved", camera.depth-before)
	}
	slots := isp.ports()[0].pool.Len()
	three := r.attach(t, OutputConfig{Name: "three", Sink: &viewer{needs: SinkNeeds{Holds: 9}}, From: "third", Format: uyvy()})
	if got := isp.ports()[0].pool.Len() - slots; got != 11 {
		t.Errorf("an output two stages behind the isp adds %d slots to it, want 11", got)
	}
	three.Detach(t.Context())
	three = r.attach(t, OutputConfig{Name: "three", Sink: &viewer{needs: SinkNeeds{Holds: 9}}, From: "third", Format: uyvy()})
	if got := isp.ports()[0].pool.Len() - slots; got != 11 {
		t.Errorf("after it was attached again: %d more slots, want 11", got)
	}
	three.Detach(t.Context())
	_, err := r.Attach(OutputConfig{Name: "pins", Sink: &viewer{needs: SinkNeeds{UseSlot: func(int, Slot) error { return nil }}}, From: "second", Format: uyvy()})
	if !errors.Is(err, ErrMemory) {
		t.Errorf("an output that needs slots of its own: %v", err)
	}
	if _, err := r.Attach(OutputConfig{Name: "other", Sink: &viewer{}, From: "second", Format: i420()}); !errors.Is(err, ErrNegotiation) {
		t.Errorf("another format: %v", err)
	}
}

// Outputs come and go while frames are being passed on; each one's books are exact, and all slots are free at the end.
func TestPassedFramesOfOutputsThatComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newCamera(t, 60, 400, 10*time.Millisecond), &copier{})
		if err := r.AddStage("model", &passer{holds: 8, took: pace}, "cam", 2); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- r.Run(t.Context()) }()
		for i := range 40 {
			time.Sleep(time.Duration(i*37%90) * time.Millisecond)
			o := r.attach(t, OutputConfig{Name: "guest", Sink: &resultsViewer{}, From: "model"})
			time.Sleep(time.Duration(i*53%70) * time.Millisecond)
			balance(t, o.Detach(t.Context()))
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// While a frame waits until a stage is ready for it, outputs are attached and removed at once.
func TestOutputsOfAStageThatIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newCamera(t, 60, 0, 10*time.Millisecond), &copier{})
		ready := time.Now().Add(time.Hour)
		await := func(ctx context.Context) {
			select {
			case <-time.After(time.Until(ready)):
			case <-ctx.Done():
			}
		}
		took := func(uint64) (time.Duration, error) { return time.Millisecond, nil }
		if err := r.AddStage("model", &passer{holds: 8, took: took, await: await}, "cam", 2); err != nil {
			t.Fatal(err)
		}
		first := &resultsViewer{}
		o := r.attach(t, OutputConfig{Name: "first", Sink: first, From: "model"})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		time.Sleep(time.Second)
		began := time.Now()
		guest := r.attach(t, OutputConfig{Name: "guest", Sink: &resultsViewer{}, From: "model"})
		balance(t, guest.Detach(t.Context()))
		if d := time.Since(began); d > 0 || o.Stats().Delivered > 0 {
			t.Errorf("it took %v, and %d frames came before the stage was ready", d, o.Stats().Delivered)
		}
		time.Sleep(time.Until(ready.Add(time.Second)))
		if n := o.Stats().Delivered; n < 50 {
			t.Errorf("%d frames in the second after it was ready", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		balance(t, o.Stats())
	})
}
