// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	foxglove "github.com/foxglove/mcap/go/mcap"
	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline"
)

// In a round each writer writes a gigabyte of 1080p, that is, benchFrames frames. A recording has them in benchSlots
// slots.
const (
	benchFrames = 256
	benchSlots  = 8
)

// prepared emits frames as fast as they are taken, and never writes to them.
type prepared struct{ source }

func (s *prepared) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	for n := range s.frames {
		f, err := s.pool.Wait(ctx)
		if err != nil {
			return nil
		}
		f.Sequence, f.Times.ExposureStart = uint64(n), moment(n)
		emit(f)
	}
	return nil
}

// A writer writes the frames of a round into a file in a folder, and makes it durable at the end.
type writer struct {
	name  string
	write func(b *testing.B, dir string, f pipeline.Format, m *meter)
}

// meter measures a round.
type meter struct {
	frame []byte // to be written
	began time.Time
	cpu   time.Duration // used before
	all   time.Duration // used before on the whole machine
	took  time.Duration // by the writer's own clock; 0 if it has none
}

// begin starts the measurement, after all preparations.
func (m *meter) begin(b *testing.B) { m.began, m.cpu, m.all = time.Now(), cpu(b), busy(b) }

var writers = []writer{
	{"record", writeRecording},
	{"fio", writeFio},
	{"mcap for Go", writeFoxglove},
	{"GStreamer filesink", writeGStreamer},
	{"ffmpeg rawvideo", writeFFmpeg},
	{"a recording's CRC-32", sumFrames},
}

func writeRecording(b *testing.B, dir string, f pipeline.Format, m *meter) {
	log := slog.New(slog.DiscardHandler)
	d, err := cufile.Open(cufile.Config{Settings: cufile.DefaultSettings(), Access: cufile.Direct, Logger: log})
	if err != nil {
		b.Fatal(err)
	}
	sink, err := New(Config{Directory: dir, Name: "rec", Source: "camera", Driver: d, Logger: log}, f)
	if err != nil {
		b.Fatal(err)
	}
	src := &prepared{source{f, preparedPool(b, f, benchSlots, m.frame), benchFrames, 0}}
	m.begin(b)
	g := pipeline.NewGraph(pipeline.GraphConfig{Logger: log})
	if err := g.AddSource("camera", src); err != nil {
		b.Fatal(err)
	}
	o, err := g.Attach(pipeline.OutputConfig{Name: "rec", From: "camera", Sink: sink, Depth: 8, Policy: pipeline.Block})
	if err != nil {
		b.Fatal(err)
	}
	err = g.Run(b.Context())
	m.took = time.Since(m.began)
	if err = errors.Join(err, o.Err(), src.pool.Close(), d.Close()); err != nil || o.Stats().Delivered != benchFrames {
		b.Fatalf("%v, %+v", err, o.Stats())
	}
}

// preparedPool returns a pool of slots in memory like the program's, each containing the frame.
func preparedPool(b *testing.B, f pipeline.Format, n int, frame []byte) *pipeline.Pool {
	memory, err := cudahost.Open(cudahost.Config{Backend: "host", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	var slots []pipeline.Slot
	for range n {
		m, err := memory.AllocHost(f.Size(), 0)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = m.Close() })
		copy(m.Bytes(), frame)
		slots = append(slots, pipeline.Slot{Bytes: m.Bytes()})
	}
	return pipeline.NewPool("frames", f, slots, nil)
}

// writeFio writes the same number of bytes in pieces of the same size, with the same number in flight.
func writeFio(b *testing.B, dir string, f pipeline.Format, m *meter) {
	piece := (f.Size() + 3*page - 1) / page * page
	out, err := exec.Command("fio", "--name=w", "--filename="+filepath.Join(dir, "fio"), "--rw=write", fmt.Sprint("--bs=", piece),
		fmt.Sprint("--size=", piece*benchFrames), "--ioengine=io_uring", fmt.Sprint("--iodepth=", Holds), "--direct=1", "--end_fsync=1",
		"--fallocate=keep", "--output-format=json").Output()
	if err != nil {
		b.Fatalf("fio: %v", err)
	}
	var r struct {
		Jobs []struct {
			Runtime int `json:"job_runtime"` // ms
		} `json:"jobs"`
	}
	if err := json.Unmarshal(out, &r); err != nil || len(r.Jobs) != 1 {
		b.Fatalf("fio: %v: %s", err, out)
	}
	m.took = time.Duration(r.Jobs[0].Runtime) * time.Millisecond
}

func writeFoxglove(b *testing.B, dir string, _ pipeline.Format, m *meter) {
	out, err := os.Create(filepath.Join(dir, "foxglove"))
	if err != nil {
		b.Fatal(err)
	}
	w, err := foxglove.NewWriter(out, &foxglove.WriterOptions{IncludeCRC: true, Chunked: true, ChunkSize: 1 << 20})
	if err == nil {
		err = w.WriteHeader(&foxglove.Header{})
	}
	if err == nil {
		err = w.WriteChannel(&foxglove.Channel{ID: 1, Topic: "/camera", MessageEncoding: "cdr"})
	}
	for n := 0; n < benchFrames && err == nil; n++ {
		err = w.WriteMessage(&foxglove.Message{ChannelID: 1, Sequence: uint32(n), LogTime: uint64(n), Data: m.frame})
	}
	if err = errors.Join(err, w.Close(), out.Sync(), out.Close()); err != nil {
		b.Fatal(err)
	}
}

// writeGStreamer writes with filesink from the same number of slots. The start-up of the program is not counted.
func writeGStreamer(b *testing.B, dir string, f pipeline.Format, m *meter) {
	c := exec.Command("python3", "testdata/filesink.py", filepath.Join(dir, "peer"), fmt.Sprint(f.Size()), fmt.Sprint(benchFrames), fmt.Sprint(benchSlots))
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	var start float64
	_, err = fmt.Fscanln(out, &start)
	m.begin(b)
	m.cpu += time.Duration(start * 1e9)
	if err = errors.Join(err, in.Close(), c.Wait()); err != nil {
		b.Fatalf("filesink: %v", err)
	}
	syncPeer(b, dir)
}

func writeFFmpeg(b *testing.B, dir string, f pipeline.Format, _ *meter) {
	synced(b, dir, "ffmpeg", "-v", "error", "-f", "rawvideo", "-pix_fmt", "gray16le", "-s", fmt.Sprintf("%dx%d", f.Width, f.Height),
		"-i", "/dev/zero", "-frames:v", fmt.Sprint(benchFrames), "-c", "copy", "-f", "rawvideo", filepath.Join(dir, "peer"))
}

// sumFrames writes nothing: it computes the CRC-32 of the same number of frames from the same number of slots, which
// fio, filesink and ffmpeg do not.
func sumFrames(b *testing.B, _ string, f pipeline.Format, m *meter) {
	pool := preparedPool(b, f, benchSlots, m.frame)
	var slots []*pipeline.Frame
	for range benchSlots {
		s, err := pool.Wait(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		slots = append(slots, s)
	}
	m.begin(b)
	for n := range benchFrames {
		if crc32.ChecksumIEEE(slots[n%benchSlots].Bytes) == 0 {
			b.Fatal("the CRC-32 of a frame is 0")
		}
	}
	m.took = time.Since(m.began)
	for _, s := range slots {
		s.Release()
	}
	if err := pool.Close(); err != nil {
		b.Fatal(err)
	}
}

// synced runs a command that writes dir/peer, and makes the file durable.
func synced(b *testing.B, dir, name string, args ...string) {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		b.Fatalf("%s: %v: %s", name, err, out)
	}
	syncPeer(b, dir)
}

// syncPeer makes dir/peer durable.
func syncPeer(b *testing.B, dir string) {
	in, err := os.Open(filepath.Join(dir, "peer"))
	if err != nil {
		b.Fatal(err)
	}
	if err := errors.Join(in.Sync(), in.Close()); err != nil {
		b.Fatal(err)
	}
}

// cpu returns the processor time used by this process and its children.
func cpu(b *testing.B) (t time.Duration) {
	return usage(b, unix.RUSAGE_SELF) + usage(b, unix.RUSAGE_CHILDREN)
}

// usage returns the processor time used by this process, or by its children that have ended.
func usage(b *testing.B, who int) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// busy returns the time for which the machine's processors have worked: the page cache is written by kernel threads,
// and interrupts belong to no process. It counts in ticks, and includes all processes.
func busy(b *testing.B) (t time.Duration) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		b.Fatal(err)
	}
	for i, f := range strings.Fields(string(text))[1:8] {
		if n, err := strconv.ParseInt(f, 10, 64); err == nil && i != 3 && i != 4 { // idle, and idle while waiting for a disk
			t += time.Duration(n) * time.Second / 100
		}
	}
	return t
}

// BenchmarkRecord writes a gigabyte with each of several writers in turn. It reports the medians of the rates and of
// the CPU time, of the processes and of the machine, and the recording's ratio to each peer with minimum and maximum.
// Most peers compute no CRC-32, so its cost is reported separately. -benchtime 10x means ten rounds. The files are in
// the folder given by TMPDIR.
func BenchmarkRecord(b *testing.B) {
	for _, name := range []string{"fio", "gst-launch-1.0", "python3", "ffmpeg"} {
		if _, err := exec.LookPath(name); err != nil {
			b.Skipf("NEEDS what make setup-test installs: %v", err)
		}
	}
	f := format(b, pipeline.RGGB10, 1920, 1080)
	frame := make([]byte, f.Size())
	fill(frame, 1)
	bytes := float64(f.Size() * benchFrames)
	rates, costs, alls := make([][]float64, len(writers)), make([][]float64, len(writers)), make([][]float64, len(writers)) // MB/s; CPU seconds per GB
	for b.Loop() {
		for i, w := range writers {
			dir, err := os.MkdirTemp(b.TempDir(), "")
			if err != nil {
				b.Fatal(err)
			}
			m := meter{frame: frame}
			m.begin(b)
			w.write(b, dir, f, &m)
			if m.took == 0 {
				m.took = time.Since(m.began)
			}
			rates[i] = append(rates[i], bytes/1e6/m.took.Seconds())
			costs[i] = append(costs[i], (cpu(b)-m.cpu).Seconds()*1e9/bytes)
			alls[i] = append(alls[i], (busy(b)-m.all).Seconds()*1e9/bytes)
			if err := os.RemoveAll(dir); err != nil {
				b.Fatal(err)
			}
		}
	}
	logCosts(b, rates, costs, alls)
	b.ReportMetric(median(shares(rates[0], rates[1])), "of-fio")
	b.ReportMetric(median(costs[0]), "cpu-s/GB")
	b.SetBytes(int64(len(writers)) * int64(bytes))
}

// logCosts logs a line for each writer, and the cost of the recording without its CRC-32, which the last writer
// computes alone.
func logCosts(b *testing.B, rates, costs, alls [][]float64) {
	for i, w := range writers {
		b.Logf("%-20s %s MB/s, %s CPU s a GB, %s of the machine's; record: %s of its rate, %s of its CPU, %s of the machine's with it", w.name,
			spread(rates[i]), spread(costs[i]), spread(alls[i]),
			spread(shares(rates[0], rates[i])), spread(shares(costs[0], costs[i])), spread(shares(alls[0], alls[i])))
	}
	last := len(writers) - 1
	var rest []float64
	for n, sum := range costs[last] {
		rest = append(rest, costs[0][n]-sum)
	}
	for i, w := range writers[1:last] {
		b.Logf("record without its CRC-32: %s of the CPU of %s", spread(shares(rest, costs[i+1])), w.name)
	}
}

// shares returns the quotients of two series, round by round.
func shares(a, b []float64) (list []float64) {
	for i := range a {
		list = append(list, a[i]/b[i])
	}
	return list
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

func spread(list []float64) string {
	return fmt.Sprintf("%.3g (%.3g to %.3g)", median(list), slices.Min(list), slices.Max(list))
}
