// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// heap allocates slots in ordinary memory.
type heap struct{ open atomic.Int32 }

func (h *heap) AllocSlot(f Format) (Slot, error) {
	h.open.Add(1)
	return Slot{Bytes: make([]byte, f.Size()), Close: func() error { h.open.Add(-1); return nil }}, nil
}

// camera emits frames at a fixed period. A frame for which no slot is free is lost, as on hardware.
type camera struct {
	format Format
	pool   *Pool
	period time.Duration
	frames int // 0: until ctx ends
}

func newCamera(t testing.TB, slots, frames int, period time.Duration) *camera {
	f, err := NewFormat(RGGB10, 16, 4, Rate{100, 1})
	if err != nil {
		t.Fatal(err)
	}
	c := &camera{format: f, frames: frames, period: period}
	var ss []Slot
	for range slots {
		ss = append(ss, Slot{Bytes: make([]byte, f.Size())})
	}
	c.pool = NewPool("camera", f, ss, nil)
	t.Cleanup(func() {
		if err := c.pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *camera) Format() Format { return c.format }

func (c *camera) Status() SourceStatus { return SourceStatus{Slots: c.pool.Len()} }

func (c *camera) Run(ctx context.Context, emit func(*Frame)) error {
	for i := 0; c.frames == 0 || i < c.frames; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(c.period):
		}
		if f := c.pool.Get(); f != nil {
			f.Sequence = uint64(i)
			f.Bytes[0] = byte(i)
			f.Times.Captured = time.Now()
			emit(f)
		}
	}
	return nil
}

// copier is a stage that makes UYVY and I420 frames whose first byte is that of the input.
type copier struct {
	planned []Format
	took    time.Duration
	fail    func(seq uint64) error
	fence   Fence
}

var errPlan = errors.New("cannot make that")

func (c *copier) Needs(Format) (StageNeeds, error) { return StageNeeds{}, nil }

func (c *copier) Plan(_ Format, want []Format) error {
	for _, w := range want {
		if w.Pixel != UYVY && w.Pixel != I420 {
			return fmt.Errorf("%w: %s", errPlan, w)
		}
	}
	c.planned = append(c.planned[:0], want...)
	return nil
}

func (c *copier) Process(_ context.Context, in *Frame, outs []*Frame) error {
	if len(outs) != len(c.planned) {
		return fmt.Errorf("%d outs, %d planned", len(outs), len(c.planned))
	}
	time.Sleep(c.took)
	if c.fail != nil {
		if err := c.fail(in.Sequence); err != nil {
			return err
		}
	}
	for i, o := range outs {
		if o == nil {
			continue
		}
		if o.Format != c.planned[i] {
			return fmt.Errorf("out %d is %s", i, o.Format)
		}
		o.Bytes[0], o.Ready = in.Bytes[0], c.fence
	}
	return nil
}

// viewer is a sink that takes some time for each frame and checks its contents.
type viewer struct {
	took  time.Duration
	mu    sync.Mutex
	seen  []uint64
	wrong int
	fail  error // returned after the first frame
	needs SinkNeeds
}

func (v *viewer) Needs() SinkNeeds { return v.needs }

func (v *viewer) Run(ctx context.Context, q *Queue) error {
	for {
		f, err := q.Next(ctx)
		if err != nil {
			return err
		}
		if v.took > 0 {
			select {
			case <-time.After(v.took):
			case <-ctx.Done():
			}
		}
		v.mu.Lock()
		v.seen = append(v.seen, f.Sequence)
		if f.Bytes[0] != byte(f.Sequence) {
			v.wrong++
		}
		v.mu.Unlock()
		q.Done(f)
		if v.fail != nil {
			return v.fail
		}
	}
}

func (v *viewer) check(t *testing.T, name string, want int) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.seen) != want || v.wrong != 0 {
		t.Errorf("%s saw %d frames, %d of them wrong, want %d right ones", name, len(v.seen), v.wrong, want)
	}
	for i := 1; i < len(v.seen); i++ {
		if v.seen[i] <= v.seen[i-1] {
			t.Errorf("%s saw frame %d after frame %d", name, v.seen[i], v.seen[i-1])
		}
	}
}

// rig is a graph with one camera and one stage.
type rig struct {
	*Graph
	heap   *heap
	stage  *copier
	source *camera
}

func newRig(t testing.TB, cam *camera, st *copier) *rig {
	r := &rig{heap: &heap{}, stage: st, source: cam}
	r.Graph = NewGraph(GraphConfig{Allocator: r.heap, Recorder: NewRecorder(64)})
	if err := r.AddSource("cam", cam); err != nil {
		t.Fatal(err)
	}
	if err := r.AddStage("isp", st, "cam", 3); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if n := r.heap.open.Load(); n != 0 {
			t.Errorf("%d slots were not freed", n)
		}
	})
	return r
}

func (r *rig) attach(t testing.TB, cfg OutputConfig) *Output {
	t.Helper()
	o, err := r.Attach(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func uyvy() Format {
	f, _ := NewFormat(UYVY, 16, 4, Rate{})
	return f
}

func i420() Format {
	f, _ := NewFormat(I420, 8, 2, Rate{})
	return f
}

// balance checks that an ended output accounts for every frame.
func balance(t *testing.T, s OutputStats) {
	t.Helper()
	sum := s.Delivered
	for _, n := range s.Dropped {
		sum += n
	}
	if sum != s.Captured || s.Waiting != 0 {
		t.Errorf("%s: captured %d, but delivered %d + dropped %v = %d, waiting %d", s.Name, s.Captured, s.Delivered, s.Dropped, sum, s.Waiting)
	}
}

// A stalled output and a slow one lose their own frames only. The others lose nothing, and every sum adds up.
func TestSlowOutputsDisturbNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newCamera(t, 12, 300, 10*time.Millisecond), &copier{took: 4 * time.Millisecond})
		quick, slow, raw, stalled := &viewer{}, &viewer{took: 100 * time.Millisecond}, &viewer{}, &viewer{took: time.Hour}
		outs := []*Output{
			r.attach(t, OutputConfig{Name: "quick", Sink: quick, Format: uyvy()}),
			r.attach(t, OutputConfig{Name: "slow", Sink: slow, Format: uyvy()}),
			r.attach(t, OutputConfig{Name: "third", Sink: &viewer{}, Format: i420(), Rate: Rate{100, 3}}),
			r.attach(t, OutputConfig{Name: "raw", Sink: raw, From: "cam"}),
			r.attach(t, OutputConfig{Name: "stalled", Sink: stalled, Format: i420(), Policy: Block}),
		}
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		quick.check(t, "quick", 300)
		raw.check(t, "raw", 300)
		for _, o := range outs {
			s := o.Stats()
			balance(t, s)
			if s.Captured != 300 {
				t.Errorf("%s: captured %d, want 300", s.Name, s.Captured)
			}
		}
		if s := outs[1].Stats(); s.Delivered < 25 || s.Delivered > 40 || s.Dropped["slow/queue"] != 300-s.Delivered {
			t.Errorf("slow: %+v", s)
		}
		if s := outs[2].Stats(); s.Delivered != 100 || s.Dropped["third/rate"] != 200 || s.Drops() != 0 {
			t.Errorf("third: %+v", s)
		}
		if s := outs[4].Stats(); s.Delivered != 1 || s.Dropped["stalled/detached"] != 2 {
			t.Errorf("stalled: %+v", s)
		}
	})
}

func TestAttachAndDetachUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newCamera(t, 9, 1000, 10*time.Millisecond), &copier{})
		steady := &viewer{}
		o := r.attach(t, OutputConfig{Name: "steady", Sink: steady, Format: uyvy()})
		ended := make(chan error, 1)
		go func() { ended <- r.Run(t.Context()) }()
		for i := range 60 {
			time.Sleep(35 * time.Millisecond)
			from, format := "", i420()
			if i%3 == 0 {
				from, format = "cam", Format{}
			}
			guest := r.attach(t, OutputConfig{Name: "guest", Sink: &viewer{took: time.Duration(i%5) * 9 * time.Millisecond}, From: from, Format: format})
			time.Sleep(95 * time.Millisecond)
			s := guest.Detach(t.Context())
			balance(t, s)
			if s.Captured < 8 || s.Captured > 11 {
				t.Errorf("guest %d was attached for 95 ms and saw %d frames of 10 ms", i, s.Captured)
			}
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		balance(t, o.Stats())
		steady.check(t, "steady", 1000)
		if n := r.heap.open.Load(); n > 12 {
			t.Errorf("%d slots after 60 guests: the pools grow", n)
		}
	})
}

// TestBooksGoOnInTheNextOutput checks that the replacement of a detached output of the same name, possibly in another
// graph, continues all its counts: frames delivered, dropped by itself, and dropped by an earlier stage, and latencies.
func TestBooksGoOnInTheNextOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var books *Books
		var before OutputStats
		for range 2 {
			st := &copier{fail: func(seq uint64) error {
				if seq%10 == 3 {
					return errors.New("bad frame")
				}
				return nil
			}}
			r := newRig(t, newCamera(t, 9, 1000, 10*time.Millisecond), st)
			ended := make(chan error, 1)
			go func() { ended <- r.Run(t.Context()) }()
			for range 20 {
				time.Sleep(35 * time.Millisecond)
				o := r.attach(t, OutputConfig{Name: "guest", Sink: &viewer{took: 13 * time.Millisecond}, Format: i420(), Books: books})
				time.Sleep(195 * time.Millisecond)
				s := o.Detach(t.Context())
				balance(t, s)
				if s.Delivered < before.Delivered+10 || s.Captured < before.Captured+15 || s.Latencies.Count < s.Delivered ||
					s.Dropped["isp/stage"] <= before.Dropped["isp/stage"] || s.Dropped["guest/queue"] <= before.Dropped["guest/queue"] {
					t.Fatalf("the books do not go on: %+v, then %+v", before, s)
				}
				before, books = s, o.Books()
			}
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestStageFailureIsCountedForEveryOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &copier{fail: func(seq uint64) error {
			if seq%10 == 3 {
				return errors.New("bad frame")
			}
			return nil
		}}
		r := newRig(t, newCamera(t, 8, 100, time.Millisecond), st)
		a, b := &viewer{}, &viewer{fail: errors.New("cable pulled")}
		oa := r.attach(t, OutputConfig{Name: "a", Sink: a, Format: uyvy()})
		ob := r.attach(t, OutputConfig{Name: "b", Sink: b, Format: i420()})
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.check(t, "a", 90)
		balance(t, oa.Stats())
		balance(t, ob.Stats())
		if s := oa.Stats(); s.Dropped["isp/stage"] != 10 {
			t.Errorf("a: %+v", s)
		}
		if s := ob.Stats(); s.Error != "cable pulled" || s.Delivered != 1 {
			t.Errorf("b: %+v", s)
		}
	})
}
