// SPDX-License-Identifier: Apache-2.0

package share

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

const (
	settles = 1500 * time.Millisecond // for programs to start
	watched = 4 * time.Second
)

// spent returns the CPU time per frame, in µs, that processes use while they run undisturbed at 60 frames a second.
func spent(b *testing.B, pids ...int) float64 {
	b.Helper()
	used := func() (ns float64) {
		for _, pid := range pids {
			threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
			if err != nil || len(threads) == 0 {
				b.Fatalf("process %d has gone: %v", pid, err)
			}
			for _, t := range threads {
				var n float64
				if text, err := os.ReadFile(t); err == nil {
					_, _ = fmt.Sscan(string(text), &n)
				}
				ns += n
			}
		}
		return ns
	}
	begin, before := time.Now(), used()
	time.Sleep(watched)
	return (used() - before) / 1e3 / (60 * time.Since(begin).Seconds())
}

// sleeper is a sink that returns all frames at once.
type sleeper struct{ format pipeline.Format }

func (s sleeper) Needs() pipeline.SinkNeeds { return pipeline.SinkNeeds{Format: s.format, Holds: 1} }

func (s sleeper) Run(ctx context.Context, q *pipeline.Queue) error {
	for {
		f, err := q.Next(ctx)
		if err != nil {
			return err
		}
		q.Done(f)
	}
}

// A side holds the CPU cost per frame of one implementation: of the program that has the frames, without and with two
// consumers, and of the consumers.
type side struct{ alone, with, consumers float64 }

// sharing returns the cost of passing the frames to others.
func (s side) sharing() float64 { return s.with - s.alone + s.consumers }

// oursOnce measures this package and its client in C.
func oursOnce(b *testing.B, exe string) (s side) {
	b.Helper()
	me := os.Getpid()
	end := shoot(b, 2, 1, func(f pipeline.Format) pipeline.Sink { return sleeper{f} })
	time.Sleep(settles)
	s.alone = spent(b, me)
	end()
	var k *Sink
	end = shoot(b, 2, 1, func(f pipeline.Format) pipeline.Sink {
		k = share(b, 2, f)
		return k
	})
	commands, out := readers(b, exe, k, 0)
	time.Sleep(settles)
	both := make(chan float64)
	go func() { both <- spent(b, commands[0].Process.Pid, commands[1].Process.Pid) }()
	s.with = spent(b, me)
	s.consumers = <-both
	end()
	if err := k.Close(); err != nil {
		b.Error(err)
	}
	for i, c := range commands {
		if err := c.Wait(); err != nil || !strings.Contains(out[i].String(), "lost 0 gaps 0") {
			b.Logf("%v: %s", err, out[i])
		}
	}
	return s
}

// launch starts a GStreamer pipeline, which ends with the round of the benchmark.
func launch(b *testing.B, elements string) *exec.Cmd {
	b.Helper()
	c := exec.Command("gst-launch-1.0", append([]string{"-q"}, strings.Fields(elements)...)...)
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	return c
}

func endProcess(c *exec.Cmd) {
	_ = c.Process.Kill()
	_ = c.Wait()
}

// GStreamer's frames either lie in memory like a camera's, from which the sink copies them: one picture, made once and
// repeated. Or they lie in the sink's own memory, which an element that generates each frame can request.
const (
	caps    = "video/x-raw,format=UYVY,width=1920,height=1080,framerate=60/1"
	copied  = "videotestsrc num-buffers=1 pattern=black ! identity drop-allocation=true ! imagefreeze ! " + caps + " ! "
	inPlace = "videotestsrc pattern=black ! " + caps + " ! "
)

// gstreamerOnce measures shmsink with two shmsrc. They take all frames, as fast as they can.
func gstreamerOnce(b *testing.B, from string) (s side) {
	b.Helper()
	alone := launch(b, from+"fakesink sync=true")
	time.Sleep(settles)
	s.alone = spent(b, alone.Process.Pid)
	endProcess(alone)
	const frames = 60 * int((settles+watched+1500*time.Millisecond)/time.Millisecond) / 1000
	socket := filepath.Join(b.TempDir(), "gst")
	sink := launch(b, from+"shmsink shm-size=64000000 wait-for-connection=true sync=true socket-path="+socket)
	await(b, "shmsink listens", func() bool { _, err := os.Stat(socket); return err == nil })
	begin := time.Now()
	source := fmt.Sprintf("shmsrc is-live=true socket-path=%s ! %s ! fakesink sync=false", socket, caps)
	counts, other := launch(b, source+fmt.Sprint(" num-buffers=", frames)), launch(b, source)
	time.Sleep(settles)
	both := make(chan float64)
	go func() { both <- spent(b, counts.Process.Pid, other.Process.Pid) }()
	s.with = spent(b, sink.Process.Pid)
	s.consumers = <-both
	if err := counts.Wait(); err != nil {
		b.Error(err)
	}
	if took := time.Since(begin).Seconds(); took > float64(frames)/60*1.1 {
		b.Errorf("GStreamer took %.1f s for %d frames at 60 a second", took, frames)
	}
	endProcess(other)
	endProcess(sink) // it may have failed an assertion when a consumer left
	return s
}

// BenchmarkShmsink measures the CPU cost of sharing frames of 1920 x 1080 at 60 a second with two processes that read a
// frame's header and no pixels, and compares it with GStreamer's shmsink and shmsrc. Rounds alternate.
func BenchmarkShmsink(b *testing.B) {
	if _, err := exec.LookPath("gst-launch-1.0"); err != nil {
		b.Skip("NEEDS GStreamer (make setup-test)")
	}
	exe := compile(b, "testdata/reader.c")
	var rows [3][]side
	for b.Loop() {
		rows[0] = append(rows[0], oursOnce(b, exe))
		rows[1] = append(rows[1], gstreamerOnce(b, copied))
		rows[2] = append(rows[2], gstreamerOnce(b, inPlace))
	}
	middle := func(list []float64) float64 { return slices.Sorted(slices.Values(list))[len(list)/2] }
	for i, name := range []string{"tegracast", "GStreamer, a camera's memory", "GStreamer, shmsink's own memory"} {
		var alone, with, consumers, all, ratios []float64
		for n, s := range rows[i] {
			alone, with, consumers = append(alone, s.alone), append(with, s.with), append(consumers, s.consumers)
			all, ratios = append(all, s.sharing()), append(ratios, s.sharing()/rows[0][n].sharing())
		}
		fmt.Printf("%s: %.0f µs a frame (%.0f to %.0f): producer %.0f, of which %.0f without consumers, both consumers %.0f; ratio %.1f (%.1f to %.1f)\n",
			name, middle(all), slices.Min(all), slices.Max(all), middle(with), middle(alone), middle(consumers), middle(ratios), slices.Min(ratios), slices.Max(ratios))
	}
}
