// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline"
)

// Duration of the paced recording, and its rate as a share of fio's.
const (
	pacedTime  = time.Minute
	pacedShare = 0.8
)

// paced emits a prepared frame each period, as a camera does; if no slot is free the frame is lost.
type paced struct {
	source
	period time.Duration
	lost   int
}

func (s *paced) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	tick := time.NewTicker(s.period)
	defer tick.Stop()
	begun := time.Now()
	for n := 0; n < s.frames; {
		for ; n < s.frames && time.Since(begun) >= time.Duration(n)*s.period; n++ {
			f := s.pool.Get()
			if f == nil {
				s.lost++
				continue
			}
			f.Sequence, f.Times.ExposureStart = uint64(n), moment(n)
			emit(f)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// BenchmarkRecordPaced records 1080p in 16-bit words for a minute, at 0.8 of the rate at which fio writes a gigabyte
// just before and just after (the smaller one counts). It reports how many frames were lost, at the source or in the
// queue, and the result of verifying the files. Written data is made durable each second, as the program does by
// default, and 64 frames may wait, the maximum of the configuration. It needs room for what fio writes in a minute. It
// only checks that the files are as they were written.
func BenchmarkRecordPaced(b *testing.B) {
	if _, err := exec.LookPath("fio"); err != nil {
		b.Skipf("NEEDS what make setup-test installs: %v", err)
	}
	f := format(b, pipeline.RGGB10, 1920, 1080)
	frame := make([]byte, f.Size())
	fill(frame, 1)
	fio := func() float64 { // bytes per second
		dir, err := os.MkdirTemp(b.TempDir(), "")
		if err != nil {
			b.Fatal(err)
		}
		defer os.RemoveAll(dir)
		m := meter{}
		writeFio(b, dir, f, &m)
		return float64(f.Size()*benchFrames) / m.took.Seconds()
	}
	for b.Loop() {
		before := fio()
		rate := pacedShare * before / float64(f.Size())
		dir := b.TempDir()
		var disk unix.Statfs_t
		if err := unix.Statfs(dir, &disk); err != nil {
			b.Fatal(err)
		}
		took := min(pacedTime, time.Duration(float64(disk.Bavail)*float64(disk.Bsize)*0.8/(rate*float64(f.Size()))*float64(time.Second)))
		s := &paced{source{f, preparedPool(b, f, 72, frame), int(rate * took.Seconds()), 0}, time.Duration(float64(time.Second) / rate), 0}
		st := recordPaced(b, dir, s)
		after := fio()
		b.Logf("%.0f MB/s, %.1f frames a second, for %v, %.2f of fio's %.0f MB/s before and %.2f of %.0f MB/s after: %d frames, lost %d at the source, in queues %v",
			rate*float64(f.Size())/1e6, rate, took.Round(time.Second), pacedShare, before/1e6, pacedShare*before/after, after/1e6, st.Delivered, s.lost, st.Dropped)
		verifyAll(b, dir, int(st.Delivered))
	}
}

func recordPaced(b *testing.B, dir string, s *paced) pipeline.OutputStats {
	log := slog.New(slog.DiscardHandler)
	d, err := cufile.Open(cufile.Config{Settings: cufile.DefaultSettings(), Access: cufile.Direct, Logger: log})
	if err != nil {
		b.Fatal(err)
	}
	sink, err := New(Config{Directory: dir, Name: "rec", Source: "camera", Driver: d, Size: 8 << 30, Sync: time.Second, Logger: log}, s.format)
	if err != nil {
		b.Fatal(err)
	}
	g := pipeline.NewGraph(pipeline.GraphConfig{Logger: log})
	if err := g.AddSource("camera", s); err != nil {
		b.Fatal(err)
	}
	o, err := g.Attach(pipeline.OutputConfig{Name: "rec", From: "camera", Sink: sink, Depth: 64, Policy: pipeline.Block})
	if err != nil {
		b.Fatal(err)
	}
	if err := errors.Join(g.Run(b.Context()), o.Err(), s.pool.Close(), d.Close()); err != nil {
		b.Fatal(err)
	}
	return o.Stats()
}

// verifyAll checks every byte of the files in a folder, which must have the given number of frames.
func verifyAll(b *testing.B, dir string, frames int) {
	files, err := Files(dir, "rec")
	if err != nil {
		b.Fatal(err)
	}
	checked := 0
	for _, path := range files {
		r, err := Inspect(b.Context(), path, true, func(float64) {})
		if err != nil || !r.Good() {
			b.Fatalf("%s: %v, %+v", path, err, r)
		}
		checked += r.Checked
	}
	if checked != frames {
		b.Fatalf("%d frames are right, want %d", checked, frames)
	}
	b.Logf("verified: %d files, %d frames, all right", len(files), checked)
}
