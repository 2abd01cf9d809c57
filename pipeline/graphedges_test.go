// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// late is a fence that opens after a delay, with or without an error.
type late struct {
	d   time.Duration
	err error
}

func (l late) Wait(ctx context.Context) error {
	select {
	case <-time.After(l.d):
		return l.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestFenceHoldsLeasesAndDropsFailedFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, l := range []late{{d: 5 * time.Millisecond}, {d: time.Millisecond, err: errors.New("kernel failed")}} {
			r := newRig(t, newCamera(t, 8, 50, 10*time.Millisecond), &copier{fence: l})
			v := &viewer{}
			o := r.attach(t, OutputConfig{Name: "v", Sink: v, Format: uyvy()})
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			s := o.Stats()
			balance(t, s)
			want := 50
			if l.err != nil {
				want = 0
			}
			v.check(t, "v", want)
			if s.Dropped["v/fence"] != uint64(50-want) {
				t.Errorf("%+v", s)
			}
		}
	})
}

// TestStageTimes checks that Work covers the stage's own time only, and Latency also the device's.
func TestStageTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newCamera(t, 8, 50, 20*time.Millisecond), &copier{took: 2 * time.Millisecond, fence: late{d: 5 * time.Millisecond}})
		r.attach(t, OutputConfig{Name: "v", Sink: &viewer{}, Format: uyvy()})
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := r.Stats().Stages[0]
		if s.Work.Count != 50 || s.Work.P50 != 2*time.Millisecond || s.Work.Max != 2*time.Millisecond {
			t.Errorf("work %+v, want 2 ms", s.Work)
		}
		if s.Latency.Count != 50 || s.Latency.P50 != 7*time.Millisecond || s.Latency.Max != 7*time.Millisecond || s.Latencies.Sum != 50*s.Latency.Max {
			t.Errorf("latency %+v, in all %v, want 7 ms", s.Latency, s.Latencies.Sum)
		}
	})
}

func TestLostFramesAreSeenInTheSequence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cam := newCamera(t, 5, 40, 10*time.Millisecond)
		r := NewGraph(GraphConfig{})
		if err := r.AddSource("cam", cam); err != nil {
			t.Fatal(err)
		}
		hog := &viewer{took: 25 * time.Millisecond}
		o, err := r.Attach(OutputConfig{Name: "hog", Sink: hog, From: "cam", Depth: 2})
		if err != nil {
			t.Fatal(err)
		}
		held := []*Frame{cam.pool.Get(), cam.pool.Get(), cam.pool.Get()} // held outside the graph: three of five slots
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := r.Stats().Sources[0]
		if s.Captured+s.Lost < 38 || s.Lost == 0 {
			t.Errorf("%+v: the sum must be the sensor's count up to the last frame seen", s)
		}
		balance(t, o.Stats())
		if err := cam.pool.Close(); !errors.Is(err, ErrLeaked) || !strings.Contains(err.Error(), "TestLostFramesAreSeenInTheSequence") {
			t.Errorf("Close with leases out: %v, want ErrLeaked and the place that leased", err)
		}
		for _, f := range held {
			f.Release()
		}
	})
}

func TestRefusals(t *testing.T) {
	cam := newCamera(t, 8, 1, time.Millisecond)
	r := newRig(t, cam, &copier{})
	r.attach(t, OutputConfig{Name: "a", Sink: &viewer{}, Format: uyvy()})
	rgb := uyvy()
	rgb.Pixel = 'R' | 'G'<<8 | 'B'<<16 | '3'<<24
	wc := newCamera(t, 8, 1, time.Millisecond)
	wc.format.Memory = MemoryWriteCombined
	if err := r.AddSource("wc", wc); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cfg  OutputConfig
		is   error
		says []string
	}{
		{OutputConfig{Name: "b", Format: rgb}, ErrNegotiation, []string{"output b", "source cam delivers RG10", "stage isp: cannot make that: RGB3"}},
		{OutputConfig{Name: "a", Format: uyvy()}, ErrName, []string{`"a"`}},
		{OutputConfig{Name: "c", From: "nowhere"}, ErrName, []string{`"nowhere"`}},
		{OutputConfig{Name: "d", From: "wc"}, ErrMemory, []string{"d reads", "wc keeps", "write-combined"}},
		{OutputConfig{Name: "e", From: "cam", Depth: 9}, nil, []string{"source cam has 8 slots", "needs 16"}},
	} {
		c.cfg.Sink = &viewer{}
		_, err := r.Attach(c.cfg)
		if err == nil {
			t.Errorf("%s was attached", c.cfg.Name)
			continue
		}
		if c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%v is not %v", err, c.is)
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%q does not say %q", err, s)
			}
		}
	}
	if len(r.stage.planned) != 1 {
		t.Errorf("after a refused plan the stage is planned for %v", r.stage.planned)
	}
	if err := r.AddStage("second", &copier{}, "wc", 1); !errors.Is(err, ErrMemory) {
		t.Errorf("stage on write-combined memory: %v", err)
	}
}

func TestNoAllocationPerFrame(t *testing.T) {
	cam := newCamera(t, 8, 0, 0)
	r := newRig(t, cam, &copier{})
	done := make(chan uint64, 1)
	r.attach(t, OutputConfig{Name: "a", Sink: &signaller{done}, Format: uyvy()})
	ended := make(chan error, 1)
	feed := make(chan struct{})
	r.sources[0].source = &steps{cam, feed}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- r.Run(ctx) }()
	if n := testing.AllocsPerRun(200, func() { feed <- struct{}{}; <-done }); n > 0 {
		t.Errorf("%v allocations a frame, want none", n)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// steps emits a frame for each signal.
type steps struct {
	*camera
	feed chan struct{}
}

func (s *steps) Run(ctx context.Context, emit func(*Frame)) error {
	for i := uint64(0); ; i++ {
		select {
		case <-s.feed:
			f := s.pool.Get()
			f.Sequence = i
			emit(f)
		case <-ctx.Done():
			return nil
		}
	}
}

type signaller struct{ done chan uint64 }

func (s *signaller) Needs() SinkNeeds { return SinkNeeds{} }

func (s *signaller) Run(ctx context.Context, q *Queue) error {
	for {
		f, err := q.Next(ctx)
		if err != nil {
			return err
		}
		n := f.Sequence
		q.Done(f)
		s.done <- n
	}
}

// The statistics that Detach returns do not change afterwards, even if the source is emitting at the time.
func TestDetachFromSourceIsFinal(t *testing.T) {
	cam := newCamera(t, 16, 0, 0)
	r := newRig(t, cam, &copier{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	for range 500 {
		o := r.attach(t, OutputConfig{Name: "guest", Sink: &viewer{}, From: "cam"})
		time.Sleep(50 * time.Microsecond)
		s := o.Detach(t.Context())
		balance(t, s)
		if again := o.Stats(); again.Captured != s.Captured || again.Delivered != s.Delivered {
			t.Fatalf("the books changed after Detach: %+v, then %+v", s, again)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A format that is no longer wanted is no longer made, and its slots are freed.
func TestPortsAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newCamera(t, 8, 400, time.Millisecond), &copier{})
		r.attach(t, OutputConfig{Name: "steady", Sink: &viewer{}, Format: uyvy()})
		ended := make(chan error, 1)
		go func() { ended <- r.Run(t.Context()) }()
		time.Sleep(10 * time.Millisecond)
		before := r.heap.open.Load()
		for i := range 2 * maxPorts {
			f := i420()
			f.Stride += 2 * i
			o := r.attach(t, OutputConfig{Name: "guest", Sink: &viewer{}, Format: f})
			time.Sleep(10 * time.Millisecond)
			if s := o.Detach(t.Context()); s.Delivered < 8 {
				t.Errorf("guest %d: %+v", i, s)
			}
		}
		if n := r.heap.open.Load(); n != before || len(r.stage.planned) != 1 {
			t.Errorf("%d slots and %d formats are left, want %d and 1", n, len(r.stage.planned), before)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// stubborn is a source that returns an error when it is stopped.
type stubborn struct{ *camera }

var errStop = errors.New("the engine does not stop")

func (s stubborn) Run(ctx context.Context, emit func(*Frame)) error {
	<-ctx.Done()
	return errStop
}

func TestErrorAtTheEndIsNotLost(t *testing.T) {
	r := NewGraph(GraphConfig{})
	if err := r.AddSource("cam", stubborn{newCamera(t, 4, 0, 0)}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); !errors.Is(err, errStop) {
		t.Errorf("%v, want %v", err, errStop)
	}
}
