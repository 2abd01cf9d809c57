// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
)

// keeper is a sink that keeps copies of frames.
type keeper struct{ frames []*pipeline.Frame }

func (k *keeper) Needs() pipeline.SinkNeeds { return pipeline.SinkNeeds{} }

func (k *keeper) Run(ctx context.Context, q *pipeline.Queue) error {
	for {
		f, err := q.Next(ctx)
		if err != nil {
			return err
		}
		k.keep(f)
		q.Done(f)
	}
}

func (k *keeper) keep(f *pipeline.Frame) {
	results := append([]pipeline.Result(nil), f.Results...)
	k.frames = append(k.frames, &pipeline.Frame{
		Format: f.Format, Bytes: bytes.Clone(f.Bytes), Sequence: f.Sequence, Times: f.Times, Flags: f.Flags, Results: results,
	})
}

func storage(t testing.TB) *cufile.Driver {
	t.Helper()
	d, err := cufile.Open(cufile.Config{Settings: cufile.DefaultSettings(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// recorded records a model camera into files of ten frames, and returns the frames that the camera delivered. Frame 7
// is missing.
func recorded(t testing.TB, d *cufile.Driver, frames int) (files []string, delivered []*pipeline.Frame) {
	t.Helper()
	b := newBench(t, 320, 240, pipeline.Rate{Num: 100, Den: 1})
	camera, dir, all := b.open(t, 12), t.TempDir(), &keeper{}
	sink, err := record.New(record.Config{
		Directory: dir, Name: "rec", Source: "camera", Library: "test", Driver: d, Size: 10 * 320 * 240 * 2,
		Configuration: []byte("sources: []\n"), Logger: slog.New(slog.DiscardHandler),
	}, camera.Format())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	g := pipeline.NewGraph(pipeline.GraphConfig{Logger: slog.New(slog.DiscardHandler), Grace: time.Minute})
	if err := g.AddSource("camera", gap{camera, frames, cancel}); err != nil {
		t.Fatal(err)
	}
	o, err := g.Attach(pipeline.OutputConfig{Name: "rec", From: "camera", Sink: sink, Depth: 4, Policy: pipeline.Block})
	if err == nil {
		_, err = g.Attach(pipeline.OutputConfig{Name: "all", From: "camera", Sink: all, Depth: 1, Policy: pipeline.Block})
	}
	if err := errors.Join(err, g.Run(ctx), o.Err()); err != nil {
		t.Fatal(err)
	}
	if files, err = record.Files(dir, "rec"); err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	if s := o.Stats(); s.Drops() > 0 || len(all.frames) != int(s.Delivered) {
		t.Fatalf("the machine was too slow to record: %+v, %d frames were kept", s, len(all.frames))
	}
	return files, all.frames
}

// gap is a camera that loses frame 7, and ends after a given number of frames.
type gap struct {
	*FPGACamera
	frames int
	end    func()
}

// Status implements pipeline.Source. A late output makes the camera wait, so that the test loses no frame.
func (g gap) Status() pipeline.SourceStatus { return pipeline.SourceStatus{Waits: true} }

func (g gap) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	n := 0
	return g.FPGACamera.Run(ctx, func(f *pipeline.Frame) {
		if n++; n == 7 || n > g.frames {
			f.Release()
			return
		}
		f.Results = append(f.Results, pipeline.Result{Stage: "count", Numbers: map[string]float64{"n": float64(n)}})
		emit(f)
		if n == g.frames {
			g.end()
		}
	})
}

// slots allocates slots of pinned memory.
type slots struct{ cudahost.Allocator }

func (s slots) AllocSlot(f pipeline.Format) (pipeline.Slot, error) {
	b, err := s.AllocHost(f.Size(), cudahost.Mapped)
	if err != nil {
		return pipeline.Slot{}, err
	}
	return pipeline.Slot{Bytes: b.Bytes(), Device: b.DevicePointer(), Close: b.Close}, nil
}

// played plays recordings, and returns the frames.
func played(t testing.TB, c RecordingConfig, enough int) ([]*pipeline.Frame, pipeline.SourceStatus) {
	t.Helper()
	memory, err := cudahost.Open(cudahost.Config{Backend: "host"})
	if err != nil {
		t.Fatal(err)
	}
	c.Slots, c.Allocator, c.Logger = 3, slots{memory}, slog.New(slog.DiscardHandler)
	r, err := NewRecording(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var k keeper
	err = r.Run(ctx, func(f *pipeline.Frame) {
		k.keep(f)
		f.Release()
		if len(k.frames) == enough {
			cancel()
		}
	})
	if err := errors.Join(err, r.Close(), memory.Close()); err != nil {
		t.Fatal(err)
	}
	return k.frames, r.Status()
}

// same compares frames with those that the camera delivered.
func same(t testing.TB, got, want []*pipeline.Frame) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d frames, want %d", len(got), len(want))
	}
	for i, f := range got {
		if f.Times.Replayed.IsZero() || f.Format != want[i].Format {
			t.Errorf("frame %d: %+v", i, f)
		}
		f.Times.Replayed = time.Time{}
		for _, m := range []*time.Time{&want[i].Times.ExposureStart, &want[i].Times.ExposureEnd, &want[i].Times.Captured} {
			*m = m.Round(0) // removes the monotonic reading
		}
		if f.Sequence != want[i].Sequence || f.Flags != want[i].Flags || !f.Times.ExposureStart.Equal(want[i].Times.ExposureStart) ||
			!reflect.DeepEqual(f.Times, want[i].Times) || !reflect.DeepEqual(f.Results, want[i].Results) {
			t.Fatalf("frame %d:\n%d %+v\n%d %+v", i, f.Sequence, f.Times, want[i].Sequence, want[i].Times)
		}
		if !bytes.Equal(f.Bytes, want[i].Bytes) {
			t.Fatalf("frame %d has other bytes", i)
		}
	}
}

// TestARecordingPlaysWhatTheCameraDelivered checks bytes, numbers, times, flags and results, from several files, with
// and without the end of a file, and from and to given times and frames.
func TestARecordingPlaysWhatTheCameraDelivered(t *testing.T) {
	d := storage(t)
	files, want := recorded(t, d, 36)
	all := RecordingConfig{Files: files, Unpaced: true, Driver: d}
	got, status := played(t, all, 0)
	same(t, got, want)
	if status.Counters["damaged"] != 0 {
		t.Errorf("%+v", status)
	}
	for _, c := range []struct{ from, to int }{{0, 12}, {12, 35}, {9, 20}, {34, 35}} {
		part := all
		part.From, part.To = record.AtFrame(want[c.from].Sequence), record.AtFrame(want[c.to-1].Sequence+1)
		got, _ := played(t, part, 0)
		same(t, got, want[c.from:c.to])
		start := want[0].Times.ExposureStart
		part.From, part.To = record.At(want[c.from].Times.ExposureStart.Sub(start)), record.At(want[c.to-1].Times.ExposureStart.Sub(start)+1)
		got, _ = played(t, part, 0)
		same(t, got, want[c.from:c.to])
	}
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, b[:len(b)-1], 0o600) // without its end a file has no index
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	got, _ = played(t, all, 0)
	same(t, got, want)
	all.From = record.At(time.Hour)
	if _, err := NewRecording(all); !errors.Is(err, record.ErrRange) || !errors.Is(err, ErrReplay) || !strings.Contains(err.Error(), "from 1h0m0s on") {
		t.Errorf("%v", err)
	}
}

// TestARecordingThatBeginsAgain checks that numbers and times continue when a recording repeats.
func TestARecordingThatBeginsAgain(t *testing.T) {
	d := storage(t)
	files, want := recorded(t, d, 20)
	got, _ := played(t, RecordingConfig{Files: files, Unpaced: true, Repeat: true, Driver: d}, 3*len(want))
	same(t, got[:len(want)], want)
	for i, f := range got[1:] {
		if before := got[i]; f.Sequence <= before.Sequence || !f.Times.Shown().After(before.Times.Shown()) {
			t.Fatalf("frame %d, %v comes after frame %d, %v", f.Sequence, f.Times.Shown(), before.Sequence, before.Times.Shown())
		}
		if !bytes.Equal(f.Bytes, want[(i+1)%len(want)].Bytes) {
			t.Fatalf("frame %d has other bytes", i+1)
		}
	}
}

// TestADamagedFrameIsCounted checks that a damaged frame is counted and skipped, and that a repeating recording ends if
// every frame is damaged.
func TestADamagedFrameIsCounted(t *testing.T) {
	d := storage(t)
	files, want := recorded(t, d, 30)
	b, err := os.ReadFile(files[1])
	if err != nil {
		t.Fatal(err)
	}
	r, err := record.OpenReader(t.Context(), files[1], nil)
	if err != nil {
		t.Fatal(err)
	}
	chunks := r.Chunks
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	spoil := func(i int) {
		b[chunks[i].Offset+chunks[i].Length/2] ^= 4
	}
	spoil(3)
	path := filepath.Join(t.TempDir(), "damaged.mcap")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	got, status := played(t, RecordingConfig{Files: []string{files[0], path, files[2]}, Unpaced: true, Driver: d}, 0)
	r, err = record.OpenReader(t.Context(), files[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	bad := len(r.Chunks) + 3
	same(t, got, append(append([]*pipeline.Frame(nil), want[:bad]...), want[bad+1:]...))
	if status.Counters["damaged"] != 1 {
		t.Errorf("%+v", status)
	}
	spoil(3)
	for i := range chunks[1:] { // the first chunk contains the format
		spoil(i + 1)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	begin := record.AtFrame(want[len(r.Chunks)+1].Sequence)
	c := RecordingConfig{Files: []string{path}, From: begin, Unpaced: true, Repeat: true, Driver: d, Slots: 3, Allocator: &replayMemory{}}
	all, err := NewRecording(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := all.Run(t.Context(), func(*pipeline.Frame) {}); !errors.Is(err, ErrAllDamaged) || all.Status().Counters["damaged"] != uint64(len(chunks)-1) {
		t.Errorf("%v, %+v", err, all.Status())
	}
	if err := all.Close(); err != nil {
		t.Error(err)
	}
}

// TestARecordingKeepsItsPace checks that no frame comes before it is due.
func TestARecordingKeepsItsPace(t *testing.T) {
	d := storage(t)
	files, want := recorded(t, d, 30)
	begin := time.Now()
	got, _ := played(t, RecordingConfig{Files: files, Driver: d}, 0)
	took := time.Since(begin)
	if last := want[len(want)-1].Times.Shown().Sub(want[0].Times.Shown()); took < last {
		t.Errorf("%v, recorded were %v", took, last)
	}
	for i, f := range got[1:] {
		apart, was := f.Times.Replayed.Sub(begin), f.Times.Shown().Sub(got[0].Times.Shown())
		if apart < was-time.Millisecond {
			t.Errorf("frame %d comes %v after the beginning, and should not before %v", i+1, apart, was)
		}
	}
}
