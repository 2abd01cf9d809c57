// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

func (b *bench) close(t *testing.T) {
	t.Helper()
	if err := errors.Join(b.Close(), b.Close()); err != nil {
		t.Error(err)
	}
	if !b.device.closed {
		t.Error("the device was not closed")
	}
}

func (b *bench) wants(t *testing.T, sequence uint64, first byte) {
	t.Helper()
	out, err := b.frame(t, sequence)
	if err != nil || out.Bytes[0] != first {
		t.Errorf("frame %d: %d, %v, want %d\n%s", sequence, out.Bytes[0], err, first, b.log)
	}
}

// said checks that the log contains the text exactly once, and clears the log.
func (b *bench) said(t *testing.T, text string) {
	t.Helper()
	if strings.Count(b.log.String(), text) != 1 {
		t.Errorf("the log does not have %q once:\n%s", text, b.log)
	}
	b.log.Reset()
}

// A changed file takes effect within two seconds, between two frames. One that does not compile changes nothing, and is
// tried only once.
func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, t.TempDir(), "add 1", false)
		defer b.close(t)
		b.wants(t, 1, 11)
		b.write(t, "fail to compile")
		time.Sleep(5 * time.Second)
		b.wants(t, 2, 11)
		b.said(t, "k.cu(1): error")
		b.write(t, "add 7\nslow 20ms")
		time.Sleep(2 * time.Second)
		b.wants(t, 3, 17)
		b.said(t, "kernel was changed and works")
		if err := os.Remove(b.file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		b.wants(t, 4, 17)
		b.said(t, "cannot be read")
		b.write(t, "add 7\nslow 20ms") // the same again
		time.Sleep(3 * time.Second)
		if n := b.device.builds(); n != 3 || b.device.states != 2 || b.device.open != 1 {
			t.Errorf("%d builds, state zeroed %d times, %d programs", n, b.device.states, b.device.open)
		}
	})
}

// A kernel that does not end costs the process its device, and is in quarantine at the next start: frames are passed on
// unchanged. It is used again when its file changes.
func TestHungKernel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		b := newBench(t, dir, "add 1\nhang", false)
		begin := time.Now()
		_, err := b.frame(t, 42)
		const limit = DefaultTimeLimit + DefaultTimeLimit/looks
		var f *FaultError
		if !errors.As(err, &f) || !f.Sticky() || !errors.Is(err, ErrHung) || f.Frame != 42 || time.Since(begin) != limit {
			t.Fatalf("%v after %v", err, time.Since(begin))
		}
		b.said(t, "it is in quarantine until its file changes")
		if _, err := b.frame(t, 43); !errors.Is(err, ErrHung) {
			t.Errorf("the frame after: %v", err)
		}
		if err := b.Close(); !errors.As(err, &f) || b.device.closed || b.device.open != 1 {
			t.Errorf("closed: %v; nothing may be given back: %+v", err, b.device)
		}

		b = newBench(t, dir, "add 1\nhang", false)
		b.said(t, "skipped: change its file, or remove the entry")
		if e := b.Quarantined(); e == nil || e.Frame != 42 || e.Kernel != "k" || e.File != b.file ||
			!strings.Contains(e.What, "not done after 1s") || !e.When.Equal(begin.Add(limit)) {
			t.Errorf("%+v", e)
		}
		b.wants(t, 1, 10)
		b.write(t, "fail") // changed, but does not compile
		time.Sleep(2 * time.Second)
		b.wants(t, 2, 10)
		b.write(t, "add 2")
		time.Sleep(2 * time.Second)
		b.wants(t, 3, 12)
		if b.Quarantined() != nil {
			t.Error("a changed kernel is still left out")
		}
		b.log.Reset()
		b.write(t, "add 1\nhang") // back to the one in quarantine
		time.Sleep(2 * time.Second)
		b.wants(t, 4, 12)
		b.said(t, "changed to one that is in quarantine")
		b.close(t)
	})
}

// Removing the entry releases a kernel without a restart.
func TestRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		q := NewQuarantine(filepath.Join(dir, "quarantine"))
		if err := q.Put(Entry{Key: Key([]byte("find"), "k"), What: "long ago"}); err != nil {
			t.Fatal(err)
		}
		b := newBench(t, dir, "find", true)
		defer b.close(t)
		if out, err := b.frame(t, 1); err != nil || len(out.Results) != 1 {
			t.Errorf("%+v, %v: a kernel that is left out finds nothing", out, err)
		}
		if err := os.Remove(q.Path(Key([]byte("find"), "k"))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		want := pipeline.Region{X: 1, Y: 1, Width: 1, Height: 1}
		if out, err := b.frame(t, 2); err != nil || len(out.Results) != 2 || out.Results[1].Stage != "k" || len(out.Results[1].Regions) != 1 || out.Results[1].Regions[0] != want {
			t.Errorf("%+v, %v", out, err)
		}
	})
}

// A sticky error is the fault of the running kernel; any other error concerns only the frame.
func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f *FaultError
		for _, text := range []string{"add 1\nillegal", "refuse"} {
			b := newBench(t, t.TempDir(), text, false)
			_, err := b.frame(t, 7)
			if !errors.As(err, &f) || f.Frame != 7 || !errors.Is(err, gone{}) || b.order.Fault() != f {
				t.Errorf("%q: %v", text, err)
			}
			if b.quarantine.Find(Key([]byte(text), "k")) == nil {
				t.Errorf("%q is not in quarantine", text)
			}
			if err := b.Close(); err == nil {
				t.Error("closing says nothing of the fault")
			}
		}
		for _, text := range []string{"innocent\nrefuse", "add 1\nillegal\ninnocent"} {
			b := newBench(t, t.TempDir(), text, false)
			if _, err := b.frame(t, 7); !errors.Is(err, gone{}) || errors.As(err, &f) || b.order.Fault() != nil {
				t.Errorf("%q: %v", text, err)
			}
			b.close(t)
		}
		b := newBench(t, t.TempDir(), "add 1\nstumble", false)
		if _, err := b.frame(t, 1); err == nil || strings.Contains(err.Error(), "ILLEGAL") {
			t.Errorf("%v", err)
		}
		b.write(t, "add 1")
		time.Sleep(2 * time.Second)
		b.wants(t, 2, 11)
		b.close(t)
	})
}

// Of several kernels on a GPU, the one that hangs is blamed, and not those that wait for it; all end.
func TestOneIsBlamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		order := NewOrder()
		hangs, waits := newBenchIn(t, order, t.TempDir(), "add 1\nhang", false), newBenchIn(t, order, t.TempDir(), "add 1\nhang\ninnocent", false)
		var late error
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, late = waits.frame(t, 5)
		}()
		time.Sleep(5 * time.Second)
		_, err := hangs.frame(t, 6)
		<-done
		var f, same *FaultError
		if !errors.As(err, &f) || f.Frame != 6 || f.File != hangs.file || !errors.As(late, &same) || f != same {
			t.Errorf("%v, and who waited: %v", err, late)
		}
		if waits.quarantine.Find(Key([]byte("add 1\nhang\ninnocent"), "k")) != nil {
			t.Error("who waited is in quarantine")
		}
		if hangs.Close() == nil || waits.Close() == nil {
			t.Error("closing says nothing of the fault")
		}
	})
}

// A GPU that does not finish a frame although the frame's kernel is not running is lost, and no kernel is blamed.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, t.TempDir(), "add 1\nhang\ninnocent", false)
		begin := time.Now()
		_, err := b.frame(t, 9)
		var f *FaultError
		if !errors.Is(err, ErrStuck) || !errors.As(err, &f) || f.Frame != 9 || time.Since(begin) != 10*DefaultTimeLimit {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		if b.quarantine.Find(Key([]byte("add 1\nhang\ninnocent"), "k")) != nil {
			t.Error("who waited is in quarantine")
		}
		if err := b.Close(); !errors.Is(err, ErrStuck) {
			t.Errorf("closed: %v", err)
		}
	})
}

// A frame whose work could be enqueued only in part fails when that part has ended, because until then it is written
// to.
func TestHalfEnqueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, t.TempDir(), "add 1\nslow 900ms\nqueue 5s\nhalf", false)
		begin := time.Now()
		if _, err := b.frame(t, 1); !errors.Is(err, errHalf) || time.Since(begin) != 5900*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		b.write(t, "add 1")
		time.Sleep(2 * time.Second)
		b.wants(t, 2, 11)
		b.close(t)
	})
}

// A kernel that begins late, after others, has its full time.
func TestLateBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, t.TempDir(), "add 1\nslow 990ms\nqueue 5s", false)
		b.wants(t, 1, 11)
		b.close(t)
	})
}

// A frame's time starts when the previous one is done.
func TestTimeLimitIsAFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, t.TempDir(), "add 1\nslow 900ms", false)
		f := grey(t)
		if err := b.Plan(f, []pipeline.Format{f}); err != nil {
			t.Fatal(err)
		}
		var outs []*pipeline.Frame
		for i := range 5 {
			in := &pipeline.Frame{Format: f, Bytes: make([]byte, f.Size()), Sequence: uint64(i)}
			out := &pipeline.Frame{Format: f, Bytes: make([]byte, f.Size())}
			if err := b.Process(t.Context(), in, []*pipeline.Frame{out}); err != nil {
				t.Fatal(err)
			}
			outs = append(outs, out)
		}
		for i, out := range outs {
			if err := out.Ready.Wait(t.Context()); err != nil {
				t.Errorf("frame %d: %v", i, err)
			}
		}
		b.close(t)
	})
}

func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, t.TempDir(), "add 1", false)
		f := grey(t)
		other := f
		other.Width = 4
		ready := f
		ready.PacketPitch, ready.HeaderGap = 12, 4
		for want, err := range map[string]error{
			"out of the same":               b.Plan(f, []pipeline.Format{other}),
			"gaps for packets":              b.Plan(ready, []pipeline.Format{ready}),
			"planned were":                  b.Process(t.Context(), &pipeline.Frame{Format: f}, nil),
			"outputs results, not pictures": (&Config{Results: true}).accepts(f, []pipeline.Format{{Pixel: pipeline.UYVY}}),
		} {
			if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		b.wants(t, 1, 11)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		in := &pipeline.Frame{Format: f, Bytes: make([]byte, f.Size())}
		if err := b.Process(ctx, in, []*pipeline.Frame{nil}); err != nil {
			t.Errorf("nothing is wanted: %v", err)
		}
		b.close(t)
		if err := errors.Join(b.Plan(f, nil)); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if err := b.Process(t.Context(), in, nil); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

// A kernel that makes pictures is replaced by the CPU while it is in quarantine; one that finds results is then skipped
// entirely.
func TestNeedsOnDevice(t *testing.T) {
	for _, results := range []bool{false, true} {
		if needs, err := (&Stage{config: Config{Results: results}}).Needs(grey(t)); err != nil || needs.OnDevice != results || needs.Holds != Holds {
			t.Errorf("results %t: %+v, %v", results, needs, err)
		}
	}
}
