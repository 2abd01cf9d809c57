// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
)

const (
	barWidth, numberBits      = 16, 10
	barsWidth, barsHeight     = barWidth * numberBits, 64
	firstBar, lastBar, noBars = 500, 531, 520 // numbers of the frames; one is missing
)

// A barCamera is a source of frames with their number in binary: white and black bars, the highest bit first.
type barCamera struct {
	pool   *pipeline.Pool
	format pipeline.Format
}

func (c *barCamera) Format() pipeline.Format       { return c.format }
func (c *barCamera) Status() pipeline.SourceStatus { return pipeline.SourceStatus{Waits: true} }

func (c *barCamera) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	for n := firstBar; n <= lastBar; n++ {
		if n == noBars {
			continue
		}
		f, err := c.pool.Wait(ctx)
		if err != nil {
			return err
		}
		for i := range barsWidth * barsHeight {
			white := n>>(numberBits-1-i%barsWidth/barWidth)&1 == 1
			switch {
			case c.format.Pixel == pipeline.UYVY:
				f.Bytes[2*i], f.Bytes[2*i+1] = [2]byte{90, 180}[i%2], 16 // Cb and Cr
				if white {
					f.Bytes[2*i+1] = 235
				}
			case white:
				binary.LittleEndian.PutUint16(f.Bytes[2*i:], 1023)
			default:
				binary.LittleEndian.PutUint16(f.Bytes[2*i:], 0)
			}
		}
		f.Sequence, f.Times.ExposureStart = uint64(n), barTime(n)
		emit(f)
	}
	return nil
}

func barTime(n int) time.Time { return time.Unix(1700000000, int64(n)*4e7) }

// barsRecorded makes a recording, and returns its path.
func barsRecorded(t *testing.T, pixel pipeline.PixelFormat) string {
	t.Helper()
	f, err := pipeline.NewFormat(pixel, barsWidth, barsHeight, pipeline.Rate{Num: 25, Den: 1})
	if err != nil {
		t.Fatal(err)
	}
	log, dir := slog.New(slog.DiscardHandler), t.TempDir()
	driver, err := cufile.Open(cufile.Config{Settings: cufile.DefaultSettings(), Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	sink, err := record.New(record.Config{Directory: dir, Name: "bars", Source: "camera", Library: "test", Driver: driver, Logger: log}, f)
	if err != nil {
		t.Fatal(err)
	}
	camera := &barCamera{pipeline.NewPool("bars", f, []pipeline.Slot{{Bytes: make([]byte, f.Size())}, {Bytes: make([]byte, f.Size())}}, nil), f}
	g := pipeline.NewGraph(pipeline.GraphConfig{Logger: log, Grace: time.Minute})
	err = g.AddSource("camera", camera)
	if err == nil {
		_, err = g.Attach(pipeline.OutputConfig{Name: "bars", Sink: sink, Policy: pipeline.Block})
	}
	if err := errors.Join(err, g.Run(t.Context()), g.Close(), driver.Close()); err != nil {
		t.Fatal(err)
	}
	files, err := record.Files(dir, "bars")
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	return files[0]
}

// barsOf returns the numbers that ffmpeg sees in the frames of a video behind a filter.
func barsOf(t *testing.T, video, filter string) (numbers []int) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-nostdin", "-i", video, "-fps_mode", "passthrough", "-vf", filter,
		"-f", "rawvideo", "-pix_fmt", "gray", "-")
	out, err := c.Output()
	if err != nil || len(out)%(barsWidth*barsHeight) != 0 {
		t.Fatalf("%v: %d bytes, %v", c, len(out), err)
	}
	for frame := range slices.Chunk(out, barsWidth*barsHeight) {
		n := 0
		for bit := range numberBits {
			if n *= 2; frame[barsWidth*barsHeight/2+bit*barWidth+barWidth/2] > 128 {
				n++
			}
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// TestRecordExportsMP4 exports parts of recordings of pictures and of samples, and checks by ffmpeg that exactly the
// frames that were asked for are in them, at their times.
func TestRecordExportsMP4(t *testing.T) {
	all := []int{}
	for n := firstBar; n <= lastBar; n++ {
		if n != noBars {
			all = append(all, n)
		}
	}
	for _, pixel := range []pipeline.PixelFormat{pipeline.UYVY, pipeline.RGGB10} {
		path, dir := barsRecorded(t, pixel), t.TempDir()
		for i, c := range []struct {
			args string
			want []int
		}{
			{"", all},
			{"--from 503 --to 519", all[3:19]},
			{"--from +19 --to +20", all[19:20]},
			{"--from 520", all[20:]},
			{"--from 400ms --to " + barTime(528).UTC().Format(time.RFC3339Nano), all[10:27]},
		} {
			out := filepath.Join(dir, fmt.Sprint(i, ".mp4"))
			status, said, errw := runs(t, append([]string{"record", "export", path, "-o", out, "--bitrate", "400"}, strings.Fields(c.args)...)...)
			if status != exitOK || !strings.Contains(said, fmt.Sprintf(" %d frames, 0 left out", len(c.want))) {
				t.Fatalf("%s, %s: status %d\n%s%s", pixel, c.args, status, said, errw)
			}
			if got := barsOf(t, out, "null"); !slices.Equal(got, c.want) {
				t.Errorf("%s, %s: frames %d, want %d", pixel, c.args, got, c.want)
			}
			barTimes(t, out, c.want)
		}
		if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
			t.Errorf("%s: %v, %v", pixel, left, err)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "0.mp4")); err != nil || strings.Index(string(b), "moov") > strings.Index(string(b), "mdat") {
			t.Errorf("%s: the index is behind the pictures: %v", pixel, err)
		}
		if pixel == pipeline.UYVY {
			sameAsY4M(t, path, filepath.Join(dir, "0.mp4"))
			twice(t, path)
		} else {
			videoOfConfiguration(t, path)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var stdout, stderr strings.Builder
		none := filepath.Join(dir, "none.mp4")
		if status := run(ctx, []string{"record", "export", path, "-o", none}, &stdout, &stderr); status != exitFailure || there(none) {
			t.Errorf("status %d, %s", status, &stderr)
		}
	}
}

// barTimes checks the times of a video's frames, from the first one.
func barTimes(t *testing.T, video string, numbers []int) {
	t.Helper()
	times := videoTimes(t, video)
	if len(times) != len(numbers) {
		t.Fatalf("%d frames", len(times))
	}
	for i, n := range numbers {
		if want := barTime(n).Sub(barTime(numbers[0])).Seconds(); math.Abs(times[i]-want) > 1e-4 {
			t.Errorf("frame %d is at %f, want %f", n, times[i], want)
		}
	}
}

// videoTimes returns the times of a video's frames in seconds.
func videoTimes(t *testing.T, video string) (times []float64) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ffprobe", "-v", "error", "-show_entries", "frame=pts_time", "-of", "csv=p=0", video).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.FieldsSeq(strings.ReplaceAll(string(out), ",", " ")) {
		at, err := strconv.ParseFloat(line, 64)
		if err != nil {
			t.Fatal(err)
		}
		times = append(times, at)
	}
	return times
}

// twice exports a recording and, after it, the same once more, whose times step back: a frame's period must be between
// them.
func twice(t *testing.T, path string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "twice.mp4")
	if status, said, errw := runs(t, "record", "export", path, path, "-o", out); status != exitOK {
		t.Fatal(status, said, errw)
	}
	const once = lastBar - firstBar
	times := videoTimes(t, out)
	if len(times) != 2*once || math.Abs(times[once]-times[once-1]-0.04) > 1e-4 || !slices.IsSorted(times) {
		t.Errorf("%f", times)
	}
}

// sameAsY4M compares a video with the recording's pictures without compression.
func sameAsY4M(t *testing.T, path, video string) {
	t.Helper()
	y4m := filepath.Join(t.TempDir(), "all.y4m")
	if status, said, errw := runs(t, "record", "export", path, "-o", y4m); status != exitOK {
		t.Fatal(status, said, errw)
	}
	out, err := exec.CommandContext(t.Context(), "ffmpeg", "-nostdin", "-i", video, "-i", y4m, "-lavfi",
		"[0]settb=1/25,setpts=N[a];[1]settb=1/25,setpts=N,format=yuv420p[b];[a][b]psnr", "-f", "null", "-").CombinedOutput()
	m := regexp.MustCompile(`PSNR y:([0-9.]+|inf) u:([0-9.]+|inf) v:([0-9.]+|inf)`).FindSubmatch(out)
	if err != nil || m == nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for i, of := range []string{"luma", "Cb", "Cr"} {
		if db, err := strconv.ParseFloat(string(m[i+1]), 64); err != nil || db < 35 {
			t.Errorf("%s: %s dB", of, m[i+1])
		}
	}
}

// videoOfConfiguration exports a recording of samples with isps of a configuration, one of which turns the pictures.
func videoOfConfiguration(t *testing.T, path string) {
	t.Helper()
	file := programtest.Write(t, "isps.yaml", `
sources: [{name: camera, model: {width: 160, height: 96, rate: 25}}]
isp: [{name: plain}, {name: turned, rotate: 90}]
outputs: [{name: raw, from: plain, rtp: {payload: raw, destinations: ["127.0.0.1:5004"]}}]
`)
	dir := t.TempDir()
	for _, c := range []struct {
		args   string
		status int
		says   string
	}{
		{"-o t.mp4 --config isps.yaml --isp turned --to +3", exitOK, " 3 frames, 0 left out"},
		{"-o u.mp4 --config isps.yaml --isp other", exitUsage, `has no isp "other": use --isp plain or turned`},
		{"-o u.mp4 --config isps.yaml", exitUsage, "has several isps: add --isp plain or turned"},
		{"-o u.mp4 --config none.yaml", exitUsage, "none.yaml: no such file"},
		{"-o u.mp4 --isp plain", exitUsage, "name the file with --config"},
		{"-o u.mp4 --bitrate 9", exitUsage, "--bitrate 9: must be from 10 to 240000 kbit/s"},
		{"-o u.dng --bitrate 900", exitUsage, "are for mp4, not for dng: leave them out"},
	} {
		args := strings.Fields(strings.NewReplacer("isps.yaml", file, "t.mp4", dir+"/t.mp4", "u.mp4", dir+"/u.mp4").Replace(c.args))
		status, said, errw := runs(t, append([]string{"record", "export", path}, args...)...)
		if status != c.status || !strings.Contains(said+errw, c.says) {
			t.Errorf("%s: status %d, want %d and %q:\n%s%s", c.args, status, c.status, c.says, said, errw)
		}
	}
	if got := barsOf(t, dir+"/t.mp4", "transpose=cclock"); !slices.Equal(got, []int{500, 501, 502}) {
		t.Errorf("frames %d", got)
	}
	if there(dir + "/u.mp4") {
		t.Error("a file is left of an export that was refused")
	}
}
