// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
)

// A picture describes a wanted picture of every frame: its layout, and the factor by which it is smaller.
type picture struct {
	pixel  pipeline.PixelFormat
	shrink int
}

// pictures returns what the default isp makes from the first n frames of the test chart's upper left corner.
func pictures(t *testing.T, width, height, n int, wanted ...picture) (made [][][]byte) {
	t.Helper()
	made = make([][][]byte, len(wanted))
	eachPicture(t, width, height, n, wanted, func(outs []*pipeline.Frame) {
		for k, out := range outs {
			made[k] = append(made[k], bytes.Clone(out.Bytes))
		}
	})
	return made
}

// eachPicture passes the pictures to show, frame by frame.
func eachPicture(t testing.TB, width, height, n int, wanted []picture, show func(outs []*pipeline.Frame)) {
	t.Helper()
	eachPictureOf(t, newSensor(t, width, height, false), n, wanted, show)
}

// defaultISP returns the configuration of the default isp.
func defaultISP() isp.Config {
	return isp.Config{Gains: isp.Gains{R: 1.5, G: 1, B: 1.1}, Demosaic: isp.Malvar}
}

// eachPictureOf is like eachPicture, with the frames of any sensor.
func eachPictureOf(t testing.TB, sensor *model.Sensor, n int, wanted []picture, show func(outs []*pipeline.Frame)) {
	t.Helper()
	width, height := sensor.Config().Width, sensor.Config().Height
	stage, err := isp.New(defaultISP())
	if err != nil {
		t.Fatal(err)
	}
	defer stage.Close()
	frame := func(p pipeline.PixelFormat, w, h int) *pipeline.Frame {
		f, err := pipeline.NewFormat(p, w, h, pipeline.Rate{})
		if err != nil {
			t.Fatal(err)
		}
		return pipeline.NewPool("test", f, []pipeline.Slot{{Bytes: make([]byte, f.Size())}}, nil).Get()
	}
	in := frame(pipeline.RGGB10, width, height)
	var outs []*pipeline.Frame
	var formats []pipeline.Format
	for _, w := range wanted {
		outs = append(outs, frame(w.pixel, width/w.shrink, height/w.shrink))
		formats = append(formats, outs[len(outs)-1].Format)
	}
	if err := stage.Plan(in.Format, formats); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		sensor.Frame(uint64(i), in.Bytes)
		if err := stage.Process(context.Background(), in, outs); err != nil {
			t.Fatal(err)
		}
		show(outs)
	}
}

// psnr returns the peak signal-to-noise ratio of two 8-bit planes in dB.
func psnr(a, b []byte) float64 {
	sum := 0.0
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		sum += d * d
	}
	if sum == 0 {
		return math.Inf(1)
	}
	return 10 * math.Log10(255*255*float64(len(a))/sum)
}

// split cuts a file into frames of n bytes.
func split(t *testing.T, path string, n int) [][]byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var frames [][]byte
	for ; len(b) >= n; b = b[n:] {
		frames = append(frames, b[:n])
	}
	return frames
}

// runs executes the program in this process.
func runs(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errw bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	status = run(ctx, args, &out, &errw)
	return status, out.String(), strings.TrimSpace(errw.String())
}

// runsWith executes the program with a text as its standard input.
func runsWith(t *testing.T, text string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	f, err := os.Open(programtest.Write(t, "stdin", text))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	before := os.Stdin
	defer func() { os.Stdin = before }()
	os.Stdin = f
	return runs(t, args...)
}

// TestMain runs the tests, or doctor in a child of doctor.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "doctor" {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	programtest.Main(m)
}
