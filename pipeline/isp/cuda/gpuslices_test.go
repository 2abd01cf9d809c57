// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/cudahost/cudatest"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
)

// roll copies lines of from into a filling frame, some at a time, up to line end, where it finishes with err.
func roll(f, from *pipeline.Frame, rnd *rand.Rand, end int, err error) {
	most := 1 + rnd.IntN(40)
	for y := 0; y < end; {
		n := min(y+1+rnd.IntN(most), end)
		copy(f.Bytes[y*f.Format.Stride:n*f.Format.Stride], from.Bytes[y*f.Format.Stride:])
		f.Arrive(n)
		y = n
		if rnd.IntN(4) == 0 {
			time.Sleep(time.Duration(rnd.IntN(200)) * time.Microsecond)
		} else {
			runtime.Gosched()
		}
	}
	f.Finish(err)
}

// readLines compares the lines of a picture as they arrive, and all of it when it is complete.
func readLines(t *testing.T, out, want *pipeline.Frame) {
	f := out.Format
	line := f.Stride
	if f.PacketPitch > 0 { // Stride is a line without its gaps
		line = line / (f.PacketPitch - f.HeaderGap) * f.PacketPitch
	}
	for y := 0; y < f.Height; {
		have, err := out.WaitLines(t.Context(), y+1)
		if err != nil {
			return
		}
		for at := y * line; at < have*line; at++ {
			if out.Bytes[at] != want.Bytes[at] {
				t.Errorf("%s: byte %d of line %d is wrong, of %d lines that are there", f, at%line, at/line, have)
				return
			}
		}
		y = have
	}
	if out.WaitWhole(t.Context()) == nil {
		compare(t, "complete", []*pipeline.Frame{out}, []*pipeline.Frame{want})
	}
}

// inSlices makes pictures of in while it arrives, and compares each line when it is handed on. Every fifth frame is
// cut.
func inSlices(t *testing.T, s *Stage, memory *cudahost.CUDA, in *pipeline.Frame, ref []*pipeline.Frame, rnd *rand.Rand) {
	t.Helper()
	other := frame(t, memory, in.Format) // device memory then contains a different frame
	for i, b := range in.Bytes {
		other.Bytes[i] = ^b
	}
	var formats []pipeline.Format
	for _, out := range ref {
		formats = append(formats, out.Format)
	}
	outs := frames(t, memory, formats)
	if err := s.Process(t.Context(), other, outs); err != nil {
		t.Fatal(err)
	}
	await(t, outs)
	outs = frames(t, memory, formats)
	cut := errors.New("cut")
	rolling, end, bad := frame(t, memory, in.Format), in.Format.Height, error(nil)
	if rnd.IntN(5) == 0 {
		end, bad = rnd.IntN(end+1), cut
	}
	rolling.Sequence, rolling.Times = in.Sequence, in.Times
	var readers sync.WaitGroup
	rolling.Fill()
	for i, out := range outs {
		out.Fill()
		readers.Go(func() { readLines(t, out, ref[i]) })
	}
	s.bandLines = 1 + rnd.IntN(40)
	readers.Go(func() { roll(rolling, in, rnd, end, bad) })
	err := s.Process(t.Context(), rolling, outs)
	if !errors.Is(err, bad) || (err == nil) != (bad == nil) {
		t.Errorf("%v, want %v", err, bad)
	}
	left := bytesOf(outs)
	for _, out := range outs {
		if bad == nil && out.Lines() != out.Format.Height {
			t.Errorf("%s: %d lines were handed on", out.Format, out.Lines())
		}
		out.Finish(err)
	}
	readers.Wait()
	if err := s.synchronize(); err != nil {
		t.Error(err)
	}
	if !reflect.DeepEqual(bytesOf(outs), left) {
		t.Error("the outputs are written after the end of Process")
	}
}

func bytesOf(frames []*pipeline.Frame) (list [][]byte) {
	for _, f := range frames {
		list = append(list, bytes.Clone(f.Bytes))
	}
	return list
}

// TestGPUDamagedIsNotObserved checks that the statistics of a damaged frame are not passed on, even if the damage is at
// its very end, and that the next frame has its own.
func TestGPUDamagedIsNotObserved(t *testing.T) {
	memory := cudatest.GPU(t)
	cut := errors.New("cut")
	var seen []isp.Statistics
	c := isp.Config{Observe: func(s *isp.Statistics) { seen = append(seen, *s) }}
	s := newStage(t, memory, c, Options{})
	src := frame(t, memory, format(t, pipeline.RGGB10, 64, 128))
	rnd := rand.New(rand.NewPCG(3, 1))
	fill(src.Bytes, 0, rnd)
	want := []pipeline.Format{format(t, pipeline.UYVY, 64, 128)}
	_, stats := reference(t, c, src, want)
	if err := s.Plan(src.Format, want); err != nil {
		t.Fatal(err)
	}
	seen = nil
	for i, damage := range []struct {
		end int
		err error
	}{{128, nil}, {100, cut}, {128, cut}, {128, nil}} {
		in, outs := frame(t, memory, src.Format), frames(t, memory, want)
		in.Fill()
		outs[0].Fill()
		rolled := make(chan bool)
		go func() { defer close(rolled); roll(in, src, rnd, damage.end, damage.err) }()
		if err := s.Process(t.Context(), in, outs); !errors.Is(err, damage.err) {
			t.Errorf("frame %d: %v", i, err)
		}
		<-rolled
	}
	if len(seen) != 2 || seen[0] != stats || seen[1] != stats {
		t.Errorf("%d frames were observed, of two that were whole", len(seen))
	}
}

// BenchmarkGPUSlices measures the time from the last line of a frame that arrives over 15 ms until its pictures are
// final, by the height of the bands, and the load of the process meanwhile.
func BenchmarkGPUSlices(b *testing.B) {
	cache := b.TempDir()
	for _, by := range []int{1, 2} {
		for _, transfer := range []Transfer{InPlace, Staged} {
			for round := range 3 {
				for _, lines := range []int{16, 32, 64, 128} {
					name := fmt.Sprintf("%dp/%s/%d-lines-%d", 1080*by, [...]string{"", "in-place", "staged"}[transfer], lines, round+1)
					b.Run(name, func(b *testing.B) { benchSlices(b, by, Options{Transfer: transfer, Cache: cache}, lines) })
				}
			}
		}
	}
}

// benchReadout is the sensor's readout time. Lines arrive in steps of 16, as an FPGA announces them.
const benchReadout = 15 * time.Millisecond

func benchSlices(b *testing.B, by int, o Options, lines int) {
	memory := cudatest.GPU(b)
	c := benchCases()[4] // Malvar, 10 bits, UYVY
	s := newStage(b, memory, c.config, o)
	s.bandLines = lines
	inFormat, want := c.formats(b, by)
	if err := s.Plan(inFormat, want); err != nil {
		b.Fatal(err)
	}
	in, outs := frame(b, memory, inFormat), frames(b, memory, want)
	var first, last []time.Duration
	before, sensor, n := cpuTime(unix.RUSAGE_SELF), time.Duration(0), 0
	for b.Loop() {
		in.Fill()
		outs[0].Fill()
		var came, made [2]time.Time // arrival of the first lines and of the last
		var both sync.WaitGroup
		both.Go(func() {
			runtime.LockOSThread() // its time is not the stage's
			defer runtime.UnlockOSThread()
			idle := cpuTime(unix.RUSAGE_THREAD)
			begun := time.Now()
			for y := 16; ; y += 16 {
				y = min(y, inFormat.Height)
				for due := begun.Add(benchReadout * time.Duration(y) / time.Duration(inFormat.Height)); came[1].Before(due); { // a sleep is too coarse
					came[1] = time.Now()
				}
				if y == 16 {
					came[0] = came[1]
				}
				in.Arrive(y)
				if y == inFormat.Height {
					break
				}
			}
			in.Finish(nil)
			sensor += cpuTime(unix.RUSAGE_THREAD) - idle
		})
		both.Go(func() {
			_, _ = outs[0].WaitLines(b.Context(), 1)
			made[0] = time.Now()
			_, _ = outs[0].WaitLines(b.Context(), want[0].Height)
			made[1] = time.Now()
		})
		if err := s.Process(b.Context(), in, outs); err != nil {
			b.Fatal(err)
		}
		outs[0].Finish(nil)
		both.Wait()
		first, last = append(first, made[0].Sub(came[0])), append(last, made[1].Sub(came[1]))
		n++
	}
	busy := cpuTime(unix.RUSAGE_SELF) - before - sensor
	for name, list := range map[string][]time.Duration{"first": first, "last": last} {
		slices.Sort(list)
		for _, p := range []int{50, 99} {
			b.ReportMetric(float64(list[len(list)*p/100].Microseconds()), fmt.Sprintf("us-%s-p%d", name, p))
		}
	}
	b.ReportMetric(float64(busy.Microseconds())/float64(n), "us-cpu/frame")
}

// cpuTime returns the processor time used by the process or the thread.
func cpuTime(who int) time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(who, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
