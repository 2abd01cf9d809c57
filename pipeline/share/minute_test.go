// SPDX-License-Identifier: Apache-2.0

package share

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
)

// stamped is the number of lines, at the top and at the bottom of a frame, that begin with its number.
const stamped = 540

// A sensor emits frames of 1920 x 1080 at 60 a second, each with its number in its pixels.
type sensor struct {
	format pipeline.Format
	pool   *pipeline.Pool
	lines  int // number of lines with the number, at the top and at the bottom
}

func (s *sensor) Format() pipeline.Format { return s.format }

func (s *sensor) Status() pipeline.SourceStatus { return pipeline.SourceStatus{Slots: s.pool.Len()} }

func (s *sensor) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	begin := time.Now()
	for n := uint64(1); ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(begin.Add(time.Duration(n) * time.Second / 60))): // a late frame is not lost
			f, err := s.pool.Wait(ctx)
			if err != nil {
				return nil
			}
			f.Sequence, f.Times.Captured = n, time.Now()
			for i := range s.lines {
				binary.LittleEndian.PutUint64(f.Bytes[i*s.format.Stride:], n)
				binary.LittleEndian.PutUint64(f.Bytes[(s.format.Height-1-i)*s.format.Stride:], n)
			}
			emit(f)
		}
	}
}

// share makes a sink for two consumers that may hold the given number of frames.
func share(t testing.TB, frames int, f pipeline.Format) *Sink {
	t.Helper()
	c := Config{Name: "front", Socket: filepath.Join(t.TempDir(), "s"), Consumers: 2, Frames: frames, Logger: slog.New(slog.DiscardHandler)}
	k, err := New(c, f)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// shoot runs a sensor with the given sink, for two consumers that may hold the given number of frames, until the
// returned function is called.
func shoot(t testing.TB, frames, lines int, open func(pipeline.Format) pipeline.Sink) (end func() pipeline.OutputStats) {
	t.Helper()
	f, err := pipeline.NewFormat(pipeline.UYVY, 1920, 1080, pipeline.Rate{Num: 60, Den: 1})
	if err != nil {
		t.Fatal(err)
	}
	memory, err := cudahost.Open(cudahost.Config{Backend: "host", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var slots []pipeline.Slot
	for range Holds(2, frames) + 4 + 2 {
		b, err := memory.AllocHost(f.Size(), cudahost.Shared)
		if err != nil {
			t.Fatal(err)
		}
		file, offset := b.File()
		slots = append(slots, pipeline.Slot{Bytes: b.Bytes(), File: file, Offset: offset, Close: b.Close})
	}
	pool := pipeline.NewPool("sensor", f, slots, nil)
	graph := pipeline.NewGraph(pipeline.GraphConfig{Logger: slog.New(slog.DiscardHandler)})
	if err := graph.AddSource("sensor", &sensor{f, pool, lines}); err != nil {
		t.Fatal(err)
	}
	out, err := graph.Attach(pipeline.OutputConfig{Name: "front", From: "sensor", Sink: open(f), Depth: 4, Policy: pipeline.Block})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- graph.Run(ctx) }()
	<-graph.Started()
	return func() pipeline.OutputStats {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := pool.Leased(); n != 0 {
			t.Errorf("%d slots are lost", n)
		}
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
		return out.Stats()
	}
}

// readers starts two consumers, reader.c, and returns when they take frames.
func readers(t testing.TB, exe string, k *Sink, lines int) (commands []*exec.Cmd, out []*bytes.Buffer) {
	t.Helper()
	for range 2 {
		c := exec.Command(exe, k.cfg.Socket, strconv.Itoa(lines))
		b := &bytes.Buffer{}
		c.Stdout, c.Stderr = b, b
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		commands, out = append(commands, c), append(out, b)
	}
	await(t, "both take frames", func() bool {
		st := k.Stats().Consumers
		return len(st) == 2 && st[0].Frames > 0 && st[1].Frames > 0
	})
	return commands, out
}

// TestShareMinute has two processes take frames of 1920 x 1080 at 60 a second for a minute. The number in the pixels of
// each frame must be correct, and nothing copied: a consumer must have less memory of its own than half a frame, get no
// more, and touch each page of the slots once.
func TestShareMinute(t *testing.T) {
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
	const lasts = time.Minute
	exe := compile(t, "testdata/reader.c")
	var k *Sink
	end := shoot(t, 8, stamped, func(f pipeline.Format) pipeline.Sink {
		k = share(t, 8, f)
		return k
	})
	commands, out := readers(t, exe, k, stamped)
	time.Sleep(lasts)
	st := end()
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	for i, c := range commands {
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
		var frames, last, lost, gaps, wrong, faults, before, own, shared, sum uint64
		var code int
		text := strings.TrimSpace(out[i].String())
		t.Log(text)
		if _, err := fmt.Sscanf(text, "frames %d last %d lost %d gaps %d wrong %d faults %d anonymous %d then %d kB shared %d kB sum %d end %d",
			&frames, &last, &lost, &gaps, &wrong, &faults, &before, &own, &shared, &sum, &code); err != nil {
			t.Fatal(err)
		}
		if seconds := uint64(lasts / time.Second); wrong > 0 || last < 60*seconds || frames < 57*seconds { // on a busy machine, consumers may lose frames of their own
			t.Errorf("%d frames of %d, %d numbers are wrong", frames, st.Captured, wrong)
		}
		const frame, page = 1920 * 1080 * 2 / 1024, 4
		if own > frame/2 || own > before+64 || shared < frame || faults > shared/page {
			t.Errorf("it has copied: a frame has %d kB", frame)
		}
	}
}
