// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// enlarged returns the real capture, enlarged by the given factor in width and height.
func enlarged(b *testing.B, by int) *pipeline.Frame {
	in := testchart(b)
	if by == 1 {
		return in
	}
	big := frame(format(b, pipeline.RGGB10, 3840, 2160))
	for y := range 2160 {
		line := in.Bytes[y%1080*3840:][:3840]
		copy(big.Bytes[y*7680:], line)
		copy(big.Bytes[y*7680+3840:], line)
	}
	return big
}

// measure processes frames. x-copy is the ratio of the time for a frame to the time for copying the input's bytes, both
// in processor time and taking turns, which is least affected by other load on the machine.
func measure(b *testing.B, s *Stage, in *pipeline.Frame, wishes ...wish) {
	_, outs := planned(b, s, in, wishes...)
	process := func() {
		if err := s.Process(context.Background(), in, outs); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		process()
	}
	b.StopTimer()
	dst := make([]byte, len(in.Bytes))
	ours, theirs := time.Duration(1<<62), time.Duration(1<<62)
	for range 10 {
		ours = min(ours, spent(b, syscall.RUSAGE_SELF, 1, func() { repeat(10, process) })/10)
		theirs = min(theirs, spent(b, syscall.RUSAGE_SELF, 1, func() { repeat(10, func() { copy(dst, in.Bytes) }) })/10)
	}
	b.ReportMetric(float64(ours), "cpu-ns/frame")
	b.ReportMetric(float64(ours)/float64(theirs), "x-copy")
}

func repeat(n int, f func()) {
	for range n {
		f()
	}
}

// workerCounts returns one and the number of cores.
func workerCounts() []int { return []int{1, runtime.GOMAXPROCS(0)} }

func grey(t testing.TB, in pipeline.Format) pipeline.Format {
	f := format(t, pipeline.Grey, in.Width, in.Height)
	f.Color = pipeline.BT709Limited
	return f
}

func quarter(t testing.TB, in pipeline.Format) pipeline.Format {
	return format(t, pipeline.UYVY, in.Width/4, in.Height/4)
}

// BenchmarkProcess measures every path at 1080p and 4K, with one core and with all.
func BenchmarkProcess(b *testing.B) {
	plain := Config{Gains: Gains{R: 1.5, B: 1.1}}
	with := func(set func(*Config)) Config { c := plain; set(&c); return c }
	all := with(func(c *Config) {
		c.Demosaic, c.Sharpen, c.Defects.Threshold, c.BlackLevel = Malvar, 0.5, 80, 4
		c.Matrix = [9]float64{1.5, -0.3, -0.2, -0.2, 1.5, -0.3, 0, -0.5, 1.5}
		c.Shading = &Shading{Columns: 2, Rows: 2, Gains: [4][]float64{{1, 1, 1, 1.1}, {1, 1, 1, 1.1}, {1, 1, 1, 1.1}, {1, 1, 1, 1.1}}}
		c.Observe = func(*Statistics) {}
	})
	for _, p := range []struct {
		name   string
		config Config
		wishes []wish
	}{
		{"uyvy+half-i420", plain, []wish{full(pipeline.UYVY), half(pipeline.I420)}},
		{"uyvy", plain, []wish{full(pipeline.UYVY)}},
		{"uyvp", plain, []wish{full(pipeline.UYVP)}},
		{"rgb24", plain, []wish{full(pipeline.RGB24)}},
		{"i420", plain, []wish{full(pipeline.I420)}},
		{"nv12", plain, []wish{full(pipeline.NV12)}},
		{"grey", plain, []wish{grey}},
		{"quarter-uyvy", plain, []wish{quarter}},
		{"malvar-uyvy", with(func(c *Config) { c.Demosaic = Malvar }), []wish{full(pipeline.UYVY)}},
		{"malvar-matrix-uyvy", with(func(c *Config) { c.Demosaic, c.Matrix = Malvar, all.Matrix }), []wish{full(pipeline.UYVY)}},
		{"statistics-uyvy", with(func(c *Config) { c.Observe = all.Observe }), []wish{full(pipeline.UYVY)}},
		{"defects-uyvy", with(func(c *Config) { c.Defects = all.Defects }), []wish{full(pipeline.UYVY)}},
		{"shading-uyvy", with(func(c *Config) { c.Shading = all.Shading }), []wish{full(pipeline.UYVY)}},
		{"everything-uyvy", all, []wish{full(pipeline.UYVY)}},
	} {
		for _, by := range []int{1, 2} {
			for _, workers := range workerCounts() {
				b.Run(fmt.Sprintf("%s/%dp/workers=%d", p.name, 1080*by, workers), func(b *testing.B) {
					c := p.config
					c.Workers = workers
					measure(b, newStage(b, c), enlarged(b, by), p.wishes...)
				})
			}
		}
	}
}

// BenchmarkAgainstFFmpeg makes the same pictures from the same frames as ffmpeg's bilinear conversion, on the same
// number of cores. ffmpeg applies no white balance and no tone curve; the isp applies that of BT.709. x-ffmpeg is how
// many times faster the isp is: on one core in processor time, which other load on the machine affects less, otherwise
// in elapsed time. The time that ffmpeg needs to start and to read the frames is not included. Both take turns, and the
// best turn of each counts.
func BenchmarkAgainstFFmpeg(b *testing.B) {
	in := testchart(b)
	path := filepath.Join(b.TempDir(), "capture.raw")
	if err := os.WriteFile(path, bytes.Repeat(wide(in.Bytes), 10), 0o600); err != nil {
		b.Fatal(err)
	}
	for _, p := range []struct {
		name string
		to   string
		wish wish
	}{
		{"uyvy", "uyvy422", full(pipeline.UYVY)},
		{"rgb24", "rgb24", full(pipeline.RGB24)},
		{"i420", "yuv420p", full(pipeline.I420)},
		{"nv12", "nv12", full(pipeline.NV12)},
		{"grey", "gray", grey},
	} {
		for _, workers := range workerCounts() {
			b.Run(fmt.Sprintf("%s/workers=%d", p.name, workers), func(b *testing.B) {
				s := newStage(b, Config{Workers: workers})
				_, outs := planned(b, s, in, p.wish)
				b.ReportAllocs()
				ours := time.Duration(1 << 62)
				ffmpeg := map[string]time.Duration{}
				for b.Loop() {
					b.StopTimer()
					for _, to := range []string{p.to, ""} {
						for _, loops := range []int{1, 1 + framesATurn/10} {
							key, took := fmt.Sprint(to, loops), ffmpegTime(b, path, to, workers, loops)
							if best, ok := ffmpeg[key]; !ok || took < best {
								ffmpeg[key] = took
							}
						}
					}
					b.StartTimer()
					process := func() {
						if err := s.Process(context.Background(), in, outs); err != nil {
							b.Fatal(err)
						}
					}
					repeat(framesATurn/4, process) // ffmpeg's start-up does not count either
					ours = min(ours, spent(b, syscall.RUSAGE_SELF, workers, func() { repeat(framesATurn, process) })/framesATurn)
				}
				more := func(to string) time.Duration {
					return ffmpeg[fmt.Sprint(to, 1+framesATurn/10)] - ffmpeg[fmt.Sprint(to, 1)]
				}
				theirs := (more(p.to) - more("")) / framesATurn
				b.ReportMetric(float64(theirs)/float64(ours), "x-ffmpeg")
				b.ReportMetric(float64(theirs), "ffmpeg-ns/frame")
				b.ReportMetric(float64(ours), "isp-ns/frame")
			})
		}
	}
}

// framesATurn is the number of frames per turn.
const framesATurn = 40

// spent returns the processor time that f uses in this process or its children or, with more than one worker, the
// elapsed time.
func spent(b *testing.B, who, workers int, f func()) time.Duration {
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	cpu, begin := used(), time.Now()
	f()
	if workers == 1 {
		return used() - cpu
	}
	return time.Since(begin)
}

// ffmpegTime returns the time for converting the ten frames of the file loops times, or for only reading them if to is
// nothing.
func ffmpegTime(b *testing.B, path, to string, threads, loops int) time.Duration {
	n := strconv.Itoa(threads)
	args := []string{
		"-v", "error", "-filter_threads", n, "-stream_loop", strconv.Itoa(loops - 1),
		"-f", "rawvideo", "-pixel_format", "bayer_rggb16le", "-video_size", "1920x1080", "-i", path,
	}
	if to != "" {
		args = append(args, "-vf", "scale=threads="+n+",format="+to)
	}
	return spent(b, syscall.RUSAGE_CHILDREN, threads, func() {
		if out, err := exec.Command("ffmpeg", append(args, "-threads", n, "-f", "null", "-")...).CombinedOutput(); err != nil {
			b.Fatalf("ffmpeg: %v: %s", err, out)
		}
	})
}
