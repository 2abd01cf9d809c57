// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// errCRC is the error with which damaged frames of a rolling camera end.
var errCRC = errors.New("its pixels do not match their CRC")

// rolling is a camera that emits frames while they are filling, at one line per period. damaged reports whether frame i
// ends as damaged.
type rolling struct {
	*camera
	damaged func(i int) error
}

func (c rolling) Run(ctx context.Context, emit func(*Frame)) error {
	for i := range c.frames {
		f := c.pool.Get()
		if f == nil {
			time.Sleep(time.Duration(c.format.Height) * c.period)
			continue
		}
		f.Sequence, f.Times.ExposureStart = uint64(i), time.Now()
		f.Fill()
		f.Retain()
		emit(f)
		for y := range c.format.Height {
			time.Sleep(c.period)
			f.Bytes[y*c.format.Stride] = byte(i)
			f.Arrive(y + 1)
		}
		f.Times.Captured = time.Now()
		f.Finish(c.damaged(i))
		f.Release()
	}
	return ctx.Err()
}

// liner is a copier that copies lines as they arrive.
type liner struct{ copier }

func (*liner) Needs(Format) (StageNeeds, error) { return StageNeeds{Slices: true}, nil }

func (l *liner) Process(ctx context.Context, in *Frame, outs []*Frame) error {
	for y := range in.Format.Height {
		if _, err := in.WaitLines(ctx, y+1); err != nil {
			return err
		}
		for _, o := range outs {
			if o != nil {
				o.Bytes[y*o.Format.Stride] = in.Bytes[y*in.Format.Stride]
				o.Arrive(y + 1)
			}
		}
	}
	if l.fail != nil {
		return l.fail(in.Sequence)
	}
	return nil
}

// lineReader is a sink that reads lines as they arrive. late is the longest delay between the arrival of a frame's
// first line and its reading.
type lineReader struct {
	mu           sync.Mutex
	early, whole int // frames whose first line was read before the last one had arrived; complete frames
	wrong, cut   int
	late         time.Duration
}

func (*lineReader) Needs() SinkNeeds { return SinkNeeds{} }

func (v *lineReader) Run(ctx context.Context, q *Queue) error {
	for {
		f, err := q.NextFilling(ctx)
		if err != nil {
			return err
		}
		if v.read(ctx, f) {
			q.Done(f)
		} else {
			q.Fail(f, DropDamaged, nil)
		}
	}
}

func (v *lineReader) read(ctx context.Context, f *Frame) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for y := range f.Format.Height {
		have, err := f.WaitLines(ctx, y+1)
		if err != nil {
			v.cut++
			return false
		}
		if y == 0 && have < f.Format.Height {
			v.early++
			v.late = max(v.late, time.Since(f.Times.ExposureStart)-time.Millisecond)
		}
		if f.Bytes[y*f.Format.Stride] != byte(f.Sequence) {
			v.wrong++
		}
	}
	if f.WaitWhole(ctx) != nil {
		v.cut++
		return false
	}
	v.whole++
	return true
}

// TestFramesThatFill checks that filling frames pass through a graph line by line, and that consumers without slices
// get them when they are complete. A damaged frame is counted by every consumer that it was offered to, and none
// delivers it.
func TestFramesThatFill(t *testing.T) {
	const frames, bad = 20, 5
	synctest.Test(t, func(t *testing.T) {
		cam := newCamera(t, 16, frames, time.Millisecond)
		h := &heap{}
		g := NewGraph(GraphConfig{Allocator: h})
		source := rolling{cam, func(i int) error {
			if i%4 == 2 {
				return errCRC
			}
			return nil
		}}
		if err := errors.Join(g.AddSource("cam", source), g.AddStage("isp", &liner{}, "cam", 2), g.AddStage("slow", &copier{}, "cam", 2)); err != nil {
			t.Fatal(err)
		}
		follow, raw := &lineReader{}, &lineReader{}
		view, stuck := &viewer{}, &viewer{took: 50 * time.Millisecond}
		var outputs []*Output
		for _, c := range []OutputConfig{
			{Name: "follow", Sink: follow, From: "isp", Format: uyvy()},
			{Name: "view", Sink: view, From: "isp", Format: uyvy()},
			{Name: "stuck", Sink: stuck, From: "isp", Format: uyvy()},
			{Name: "raw", Sink: raw, From: "cam"},
			{Name: "later", Sink: &viewer{}, From: "slow", Format: uyvy()},
		} {
			o, err := g.Attach(c)
			if err != nil {
				t.Fatal(err)
			}
			outputs = append(outputs, o)
		}
		if err := g.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, o := range outputs {
			st := o.Stats()
			balance(t, st)
			if st.Captured != frames || st.Name != "stuck" && st.Delivered != frames-bad {
				t.Errorf("%+v", st)
			}
		}
		view.check(t, "view", frames-bad)
		for name, v := range map[string]*lineReader{"follow": follow, "raw": raw} {
			if v.early != frames || v.whole != frames-bad || v.cut != bad || v.wrong != 0 || v.late != 0 {
				t.Errorf("%s: %+v", name, v)
			}
		}
		if err := g.Close(); err != nil || h.open.Load() != 0 {
			t.Error(err, h.open.Load())
		}
	})
}

// TestWaitingForLines checks that a waiting goroutine is woken by lines, by the end, by damage and by its own context,
// without allocation.
func TestWaitingForLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cam := newCamera(t, 1, 0, 0)
		f := cam.pool.Get()
		defer f.Release()
		f.Fill()
		wait := func(n int) (have chan int, err chan error) {
			have, err = make(chan int, 1), make(chan error, 1)
			go func() {
				h, e := f.WaitLines(t.Context(), n)
				have <- h
				err <- e
			}()
			synctest.Wait()
			return have, err
		}
		two, err2 := wait(2)
		four, err4 := wait(4)
		f.Arrive(1)
		synctest.Wait()
		if len(two)+len(four) > 0 {
			t.Error("woken too early")
		}
		f.Arrive(3)
		f.Arrive(2) // the number of lines never decreases
		if got := <-two; got != 3 || <-err2 != nil || len(four) > 0 {
			t.Errorf("two lines: %d", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := f.WaitLines(ctx, 4); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		f.Finish(errCRC)
		if <-four; true {
			if err := <-err4; !errors.Is(err, ErrDamaged) || !errors.Is(err, errCRC) {
				t.Error(err)
			}
		}
		if _, err := f.WaitLines(t.Context(), 1); !errors.Is(err, ErrDamaged) {
			t.Error("lines of a damaged frame can be read", err)
		}
		if len(f.arrival.waiting) != 0 {
			t.Errorf("%d still wait", len(f.arrival.waiting))
		}
	})
}

// TestAWaiterIsWokenOnce checks that a Waiter is woken once, not for lines that have already arrived, and not after
// Forget.
func TestAWaiterIsWokenOnce(t *testing.T) {
	f := newCamera(t, 1, 0, 0).pool.Get()
	defer f.Release()
	f.Fill()
	woken := 0
	w := Waiter{Wake: func() { woken++ }}
	for i, step := range []struct {
		do    func()
		want  int // lines to wait for; 0: no call
		there bool
		woken int
	}{
		{func() {}, 2, false, 0},
		{func() { f.Arrive(1) }, 2, false, 0},
		{func() { f.Arrive(2) }, 0, false, 1},
		{func() { f.Arrive(3) }, 2, true, 1},
		{func() {}, 4, false, 1},
		{func() { f.Forget(&w); f.Arrive(4) }, Whole, false, 1},
		{func() { f.Finish(nil) }, Whole, true, 2},
	} {
		step.do()
		if step.want > 0 {
			lines, there, err := f.Await(&w, step.want)
			if there != step.there || err != nil || there && lines < min(step.want, f.Format.Height) {
				t.Errorf("%d: %d lines, there %t: %v", i, lines, there, err)
			}
		}
		if woken != step.woken {
			t.Errorf("%d: woken %d times, want %d", i, woken, step.woken)
		}
	}
	if len(f.arrival.waiting) != 0 {
		t.Error("somebody still waits")
	}
}

// TestWaitingAllocatesNothing checks that waiting allocates nothing once the maximum number of simultaneous waiters was
// reached.
func TestWaitingAllocatesNothing(t *testing.T) {
	cam := newCamera(t, 1, 0, 0)
	f := cam.pool.Get()
	defer f.Release()
	ask, done := make(chan int), make(chan error)
	go func() {
		for n := range ask {
			_, err := f.WaitLines(context.Background(), n)
			done <- err
		}
	}()
	defer close(ask)
	f.Fill()
	if n := testing.AllocsPerRun(100, func() {
		f.Fill()
		for y := range 4 {
			ask <- y + 1
			f.Arrive(y + 1)
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		f.Finish(nil)
	}); n > 0 {
		t.Errorf("%v allocations a frame", n)
	}
}
