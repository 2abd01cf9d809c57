// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
)

// replayMemory is an Allocator that counts unfreed slots and fails after a number of slots.
type replayMemory struct {
	live  int
	limit int
	short int // bytes that each slot is too short by
}

func (m *replayMemory) AllocSlot(f pipeline.Format) (pipeline.Slot, error) {
	if m.limit > 0 && m.live == m.limit {
		return pipeline.Slot{}, errors.New("out of memory")
	}
	m.live++
	return pipeline.Slot{
		Bytes: make([]byte, f.Size()-m.short),
		Close: func() error { m.live--; return nil },
	}, nil
}

func replayFile(t testing.TB, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func replayFormat(t testing.TB, p pipeline.PixelFormat, width, height int, rate pipeline.Rate) pipeline.Format {
	t.Helper()
	f, err := pipeline.NewFormat(p, width, height, rate)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// rawFrames returns n frames of size bytes, each filled with its number plus one.
func rawFrames(n, size int) []byte {
	var b []byte
	for i := range n {
		b = append(b, bytes.Repeat([]byte{byte(i + 1)}, size)...)
	}
	return b
}

// newReplay returns a replay that is closed at the end of the test. The test fails if a lease or a slot is left.
func newReplay(t testing.TB, c ReplayConfig) *Replay {
	t.Helper()
	memory := &replayMemory{}
	c.Allocator = memory
	r, err := NewReplay(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.Close(), r.Close()); err != nil {
			t.Error(err)
		}
		if memory.live != 0 {
			t.Errorf("%d slots were not freed", memory.live)
		}
	})
	return r
}

func TestReplayOnce(t *testing.T) {
	f := replayFormat(t, pipeline.RGGB10, 4, 2, pipeline.Rate{})
	r := newReplay(t, ReplayConfig{Path: replayFile(t, rawFrames(3, 16)), Format: f, Slots: 1})
	var seen []byte
	err := r.Run(t.Context(), func(f *pipeline.Frame) {
		if f.Sequence != uint64(len(seen)) || f.Times.Captured.IsZero() || f.Ready != nil {
			t.Errorf("frame %d: sequence %d, times %v", len(seen), f.Sequence, f.Times)
		}
		if !bytes.Equal(f.Bytes, bytes.Repeat(f.Bytes[:1], 16)) {
			t.Errorf("frame %d is torn: %x", len(seen), f.Bytes)
		}
		seen = append(seen, f.Bytes[0])
		f.Release()
	})
	if err != nil || !bytes.Equal(seen, []byte{1, 2, 3}) || r.Emitted() != 3 || r.Skipped() != 0 || r.Frames() != 3 {
		t.Errorf("error %v, saw %v, emitted %d, skipped %d", err, seen, r.Emitted(), r.Skipped())
	}
	if r.Format() != f {
		t.Errorf("format %s, want %s", r.Format(), f)
	}
}

func TestReplayLoopsUntilCancelled(t *testing.T) {
	f := replayFormat(t, pipeline.RGGB10, 4, 2, pipeline.Rate{})
	r := newReplay(t, ReplayConfig{Path: replayFile(t, rawFrames(3, 16)), Format: f, Slots: 2, Loop: true})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	err := r.Run(ctx, func(f *pipeline.Frame) {
		if f.Sequence != uint64(n) || f.Bytes[0] != byte(n%3+1) {
			t.Errorf("frame %d: sequence %d, filled with %d", n, f.Sequence, f.Bytes[0])
		}
		f.Release()
		if n++; n == 20 {
			cancel()
		}
	})
	if err != nil || n != 20 {
		t.Errorf("error %v after %d frames", err, n)
	}
}

// TestReplayUnpacedWaits holds every slot and checks that no frame is skipped and that Run ends with ctx.
func TestReplayUnpacedWaits(t *testing.T) {
	f := replayFormat(t, pipeline.RGGB10, 4, 2, pipeline.Rate{})
	r := newReplay(t, ReplayConfig{Path: replayFile(t, rawFrames(5, 16)), Format: f, Slots: 2})
	ctx, cancel := context.WithCancel(t.Context())
	frames, done := make(chan *pipeline.Frame, 5), make(chan error, 1)
	go func() { done <- r.Run(ctx, func(f *pipeline.Frame) { frames <- f }) }()
	for i := range uint64(3) {
		f := <-frames
		if f.Sequence != i {
			t.Errorf("frame %d has sequence %d", i, f.Sequence)
		}
		f.Release()
	}
	held := []*pipeline.Frame{<-frames, <-frames}
	cancel()
	if err := <-done; err != nil || r.Skipped() != 0 {
		t.Errorf("error %v, skipped %d", err, r.Skipped())
	}
	if err := r.Close(); !errors.Is(err, pipeline.ErrLeaked) || !strings.Contains(err.Error(), "sequence 4") {
		t.Errorf("Close while frames are held: %v", err)
	}
	for _, f := range held {
		f.Release()
	}
}

// TestReplayPacedSkips holds the only slot until the replay has skipped three frames, and then checks that their
// numbers are missing.
func TestReplayPacedSkips(t *testing.T) {
	f := replayFormat(t, pipeline.RGGB10, 4, 2, pipeline.Rate{Num: 200, Den: 1})
	r := newReplay(t, ReplayConfig{Path: replayFile(t, rawFrames(2, 16)), Format: f, Slots: 1, Loop: true})
	ctx, cancel := context.WithCancel(t.Context())
	frames, done := make(chan *pipeline.Frame), make(chan error, 1)
	go func() { done <- r.Run(ctx, func(f *pipeline.Frame) { frames <- f }) }()
	first := <-frames
	before, skipped := first.Sequence, r.Skipped()
	for range 5000 {
		if r.Skipped() >= skipped+3 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	first.Release()
	second := <-frames
	if second.Sequence < before+4 || second.Bytes[0] != byte(second.Sequence%2+1) {
		t.Errorf("sequence %d, filled with %d", second.Sequence, second.Bytes[0])
	}
	if n := second.Sequence + 1; r.Emitted()+r.Skipped() < n { // it skips more frames, because the only slot is taken again
		t.Errorf("emitted %d + skipped %d is less than %d", r.Emitted(), r.Skipped(), n)
	}
	second.Release()
	cancel()
	for {
		select {
		case f := <-frames:
			f.Release()
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		}
	}
}

// TestFramesOfAReplayAreApart checks that no two frames have the same timestamp of RTP's 90 kHz clock, however fast
// they follow, and that none has a timestamp far ahead of its time.
func TestFramesOfAReplayAreApart(t *testing.T) {
	f := replayFormat(t, pipeline.RGGB10, 4, 2, pipeline.Rate{})
	for name, c := range map[string]ReplayConfig{"paced": {Rate: pipeline.Rate{Num: 20000, Den: 1}}, "unpaced": {}} {
		c.Path, c.Format, c.Loop, c.Slots = replayFile(t, rawFrames(3, 16)), f, true, 2
		r := newReplay(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		seen := map[int64]uint64{}
		err := r.Run(ctx, func(f *pipeline.Frame) {
			defer f.Release()
			at := f.Times.Captured
			tick := at.UnixNano()/1e9*90000 + at.UnixNano()%1e9*9/1e5
			if first, taken := seen[tick]; taken {
				t.Errorf("%s: frames %d and %d share the timestamp %d", name, first, f.Sequence, tick)
				cancel()
			}
			if ahead := time.Until(at); ahead > 2*time.Millisecond {
				t.Errorf("%s: frame %d is stamped %v ahead", name, f.Sequence, ahead)
				cancel()
			}
			if seen[tick] = f.Sequence; len(seen) == 1000 {
				cancel()
			}
		})
		cancel()
		if err != nil || len(seen) < 1000 {
			t.Errorf("%s: %v after %d frames", name, err, len(seen))
		}
	}
}

func TestPacerDoesNotDrift(t *testing.T) {
	p := newPacer(pipeline.Rate{Num: 30000, Den: 1001})
	for n, want := range map[uint64]time.Duration{
		0: 0, 1: 33366666, 30000: 1001 * time.Second, 30001: 1001*time.Second + 33366666,
		30000 * 1e6: 1001 * 1e6 * time.Second, // 31 years
	} {
		if got := p.due(n).Sub(p.start); got != want {
			t.Errorf("frame %d is due after %v, want %v", n, got, want)
		}
	}
}

func TestReplayRefusesFile(t *testing.T) {
	dir := t.TempDir()
	f := replayFormat(t, pipeline.RGGB10, 4, 2, pipeline.Rate{})
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	long := replayFile(t, nil)
	if err := os.Truncate(long, 16*(1<<24+1)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path   string
		format pipeline.Format
		want   []string
	}{
		"missing":   {filepath.Join(dir, "none"), f, []string{"none", "no such file", "correct the path"}},
		"directory": {dir, f, []string{dir + " is a directory, not a regular file", "name a file"}},
		"FIFO":      {fifo, f, []string{fifo + " is a FIFO"}},
		"long":      {long, f, []string{"has 16777217 frames: at most 16777216"}},
		"empty":     {replayFile(t, nil), f, []string{"is empty", "16 bytes"}},
		"short":     {replayFile(t, make([]byte, 15)), f, []string{"has 15 bytes, 1 less", "RG10 4x2", "correct the width"}},
		"odd": {replayFile(t, make([]byte, 41)), f, []string{
			"has 41 bytes, that is 2 frames", "(16 bytes each) and 9 bytes over", "correct the width",
		}},
		"too fast":   {replayFile(t, []byte("YUV4MPEG2 W4 H2 F45001:1\nFRAME\n123456789012")), pipeline.Format{}, []string{"45001 frames", "at most 45000"}},
		"y4m as raw": {replayFile(t, []byte("YUV4MPEG2 W4 H2\nFRAME\n123456789012")), f, []string{"leave out the format"}},
		"raw as y4m": {replayFile(t, make([]byte, 16)), pipeline.Format{}, []string{"byte 0", "needs its pixel format"}},
	} {
		memory := &replayMemory{}
		_, err := NewReplay(ReplayConfig{Path: c.path, Format: c.format, Slots: 1, Allocator: memory})
		if !errors.Is(err, ErrReplay) || strings.Contains(err.Error(), "\n") || memory.live != 0 {
			t.Errorf("%s: error %v, %d slots live", name, err, memory.live)
			continue
		}
		for _, want := range append(c.want, c.path) {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %q lacks %q", name, err, want)
			}
		}
	}
}

func TestReplayRefusesConfig(t *testing.T) {
	f := replayFormat(t, pipeline.RGGB10, 4, 2, pipeline.Rate{})
	good := ReplayConfig{Path: "x", Format: f, Slots: 1, Allocator: &replayMemory{}}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*ReplayConfig){
		"no file is named":        func(c *ReplayConfig) { c.Path = "" },
		"0 slots: must be from 1": func(c *ReplayConfig) { c.Slots = 0 },
		"no allocator":            func(c *ReplayConfig) { c.Allocator = nil },
		"rate -1/1":               func(c *ReplayConfig) { c.Rate = pipeline.Rate{Num: -1, Den: 1} },
		"rate 30/0":               func(c *ReplayConfig) { c.Rate = pipeline.Rate{Num: 30} },
		"stride 4 is less":        func(c *ReplayConfig) { c.Format.Stride = 4 },
		"stride 4611686018427387904 is more than 16777216 bytes": func(c *ReplayConfig) { c.Format.Stride = 1 << 62 },
		"in device memory": func(c *ReplayConfig) { c.Format.Memory = pipeline.MemoryDevice },
	} {
		c := good
		spoil(&c)
		if _, err := NewReplay(c); !errors.Is(err, ErrReplay) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestReplayFreesSlotsOnFailure(t *testing.T) {
	f := replayFormat(t, pipeline.RGGB10, 4, 2, pipeline.Rate{})
	for want, memory := range map[string]*replayMemory{
		"slot 2 of 3: out of memory":                 {limit: 2},
		"slot 0 of 3: the CPU can write 15 bytes of": {short: 1},
	} {
		_, err := NewReplay(ReplayConfig{Path: replayFile(t, rawFrames(1, 16)), Format: f, Slots: 3, Allocator: memory})
		if err == nil || !strings.Contains(err.Error(), want) || memory.live != 0 {
			t.Errorf("error %v, want %q; %d slots live", err, want, memory.live)
		}
	}
}

func TestReplayFileCutUnderWay(t *testing.T) {
	f := replayFormat(t, pipeline.RGGB10, 4, 2, pipeline.Rate{})
	path := replayFile(t, rawFrames(2, 16))
	r := newReplay(t, ReplayConfig{Path: path, Format: f, Slots: 1, Loop: true})
	err := r.Run(t.Context(), func(f *pipeline.Frame) {
		f.Release()
		if err := os.Truncate(path, 20); err != nil {
			t.Error(err)
		}
	})
	if !errors.Is(err, ErrReplay) || !strings.Contains(err.Error(), "read 4 of 16 bytes at byte 16") {
		t.Errorf("error %v", err)
	}
}

func TestReplayAllocatesNothing(t *testing.T) {
	for _, rate := range []pipeline.Rate{{}, {Num: 40000, Den: 1}} {
		f := replayFormat(t, pipeline.RGGB10, 64, 64, rate)
		r := newReplay(t, ReplayConfig{
			Path: replayFile(t, rawFrames(2, f.Size())), Format: f, Slots: 2, Loop: true,
		})
		const frames = 2000
		if n := testing.AllocsPerRun(1, func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			n := 0
			if err := r.Run(ctx, func(f *pipeline.Frame) {
				f.Release()
				if n++; n == frames {
					cancel()
				}
			}); err != nil {
				t.Error(err)
			}
		}); n > 20 { // of the whole Run, not per frame
			t.Errorf("rate %v: %v allocations for %d frames", rate, n, frames)
		}
	}
}

// BenchmarkReplay reads a 1080p raw frame into its slot.
func BenchmarkReplay(b *testing.B) {
	f := replayFormat(b, pipeline.RGGB10, 1920, 1080, pipeline.Rate{})
	r := newReplay(b, ReplayConfig{Path: replayFile(b, rawFrames(2, f.Size())), Format: f, Slots: 2, Loop: true})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b.SetBytes(int64(f.Size()))
	b.ReportAllocs()
	b.ResetTimer()
	n := 0
	if err := r.Run(ctx, func(f *pipeline.Frame) {
		f.Release()
		if n++; n == b.N {
			cancel()
		}
	}); err != nil {
		b.Fatal(err)
	}
}
