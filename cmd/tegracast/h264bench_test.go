// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/codec"
)

// BenchmarkH264 encodes the moving pictures of the real capture, with openh264 as serve does, and with x264 (ffmpeg,
// preset ultrafast, tune zerolatency) at the same bit rate, in turn. It prints luma PSNR, bits, and CPU time per picture
// with the spread of the rounds. ffmpeg's CPU time is that of the process, minus that of one that reads the pictures
// without encoding.
//
//	go test -run '^$' -bench H264 -benchtime 1x ./cmd/tegracast
func BenchmarkH264(b *testing.B) {
	const rounds, frames = 3, 60
	for _, size := range []picture{{pipeline.I420, 2}, {pipeline.I420, 1}} {
		c := newComparison(b, size, frames)
		for _, share := range []int{1, 2, 4} { // in twentieths of a bit per pixel
			c.bitrate = codec.DefaultBitrate(c.format) * share / 2
			b.Run(fmt.Sprintf("%dx%d/%dk", c.format.Width, c.format.Height, c.bitrate/1000), func(b *testing.B) {
				var ours, theirs, idle []time.Duration
				var a, x []byte
				for range b.N * rounds {
					var cpu time.Duration
					a, cpu = c.openh264(b)
					ours = append(ours, cpu)
					x, cpu = c.ffmpeg(b, "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-b:v", fmt.Sprint(c.bitrate),
						"-maxrate", fmt.Sprint(c.bitrate), "-bufsize", fmt.Sprint(c.bitrate), "-g", "60", "-threads", "2", "-f", "h264")
					theirs = append(theirs, cpu)
					_, cpu = c.ffmpeg(b, "rawvideo", "-f", "null")
					idle = append(idle, cpu)
				}
				still := sorted(idle)[len(idle)/2]
				for i := range theirs {
					theirs[i] -= still
				}
				b.Logf("openh264: %s; x264: %s", c.describeStream(b, a, ours), c.describeStream(b, x, theirs))
			})
		}
	}
}

// comparison has the pictures to encode.
type comparison struct {
	format  pipeline.Format
	frames  []*pipeline.Frame
	path    string // of the file with all of them
	bitrate int
}

func newComparison(b *testing.B, p picture, frames int) *comparison {
	b.Helper()
	c := &comparison{path: filepath.Join(b.TempDir(), "pictures.yuv")}
	out, err := os.Create(c.path)
	if err != nil {
		b.Fatal(err)
	}
	eachPicture(b, 1920, 1080, frames, []picture{p}, func(outs []*pipeline.Frame) {
		c.format = outs[0].Format
		c.format.Rate, c.format.Color = pipeline.Rate{Num: 30, Den: 1}, pipeline.BT709Limited // otherwise ffmpeg would convert the range
		c.frames = append(c.frames, &pipeline.Frame{Format: c.format, Bytes: bytes.Clone(outs[0].Bytes)})
		if _, err := out.Write(outs[0].Bytes); err != nil {
			b.Fatal(err)
		}
	})
	if err := out.Close(); err != nil {
		b.Fatal(err)
	}
	return c
}

// openh264 encodes the pictures, with a key frame every two seconds.
func (c *comparison) openh264(b *testing.B) (stream []byte, cpu time.Duration) {
	b.Helper()
	h, err := codec.NewH264(c.format, c.bitrate)
	if err != nil {
		b.Fatal(err)
	}
	room := make([]byte, 0, c.format.Size())
	var before, after unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &before); err != nil {
		b.Fatal(err)
	}
	for n, f := range c.frames {
		unit, err := h.Encode(room, f, n%60 == 0)
		if err != nil {
			b.Fatal(err)
		}
		stream = append(stream, unit...)
	}
	if err := unix.Getrusage(unix.RUSAGE_SELF, &after); err != nil {
		b.Fatal(err)
	}
	if err := h.Close(); err != nil {
		b.Error(err)
	}
	return stream, time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
}

// ffmpeg encodes the pictures with one of ffmpeg's encoders.
func (c *comparison) ffmpeg(b *testing.B, encoder string, args ...string) (stream []byte, cpu time.Duration) {
	b.Helper()
	in := []string{"-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "yuv420p", "-s", fmt.Sprintf("%dx%d", c.format.Width, c.format.Height), "-r", "30", "-i", c.path}
	cmd := exec.Command("ffmpeg", slices.Concat(in, []string{"-c:v", encoder}, args, []string{"-"})...)
	stream, err := cmd.Output()
	if err != nil {
		b.Fatalf("%s: %v", cmd, err)
	}
	return stream, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// describeStream describes the quality and the cost of a stream.
func (c *comparison) describeStream(b *testing.B, stream []byte, cpu []time.Duration) string {
	b.Helper()
	cmd := exec.Command("ffmpeg", "-loglevel", "error", "-f", "h264", "-i", "-", "-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "yuv420p", "-")
	cmd.Stdin = bytes.NewReader(stream)
	out, err := cmd.Output()
	if n := len(out) / c.format.Size(); err != nil || n != len(c.frames) {
		b.Fatalf("%d pictures decoded: %v", n, err)
	}
	worst, mean, luma := 1000.0, 0.0, c.format.Width*c.format.Height
	for i, f := range c.frames {
		db := psnr(out[i*c.format.Size():][:luma], f.Bytes[:luma])
		worst, mean = min(worst, db), mean+db/float64(len(c.frames))
	}
	ms := func(d time.Duration) float64 { return d.Seconds() * 1000 / float64(len(c.frames)) }
	list := sorted(cpu)
	return fmt.Sprintf("%.1f dB, worst %.1f, %.2f Mb/s, %.1f ms (%.1f to %.1f)", mean, worst,
		8*30*float64(len(stream))/float64(len(c.frames))/1e6, ms(list[len(list)/2]), ms(list[0]), ms(list[len(list)-1]))
}

func sorted(list []time.Duration) []time.Duration { return slices.Sorted(slices.Values(list)) }
