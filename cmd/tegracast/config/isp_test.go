// SPDX-License-Identifier: Apache-2.0

package config

import (
	"image"
	"reflect"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
)

const good = programtest.Small

// TestISPConfig checks that every key of an isp section reaches the stage's configuration.
func TestISPConfig(t *testing.T) {
	defects := programtest.Write(t, "defects.txt", "7 8\n9 10 # hot\n")
	shading := programtest.Write(t, "shading.txt", "2 2\nred 1 1 1 1.5\ngreen_red 1 1 1 1.25\ngreen_blue 1 1 1 1.25\nblue 1 1 1 2\n")
	raw := programtest.Write(t, "x.raw", strings.Repeat("\x00", 320*240*3/2))
	text := strings.NewReplacer("{name: isp}", `{name: isp, black_levels: {red: 60, green_red: 61, green_blue: 62, blue: 63},
 defects: {pixels: [[3, 4], [5, 6]], file: "`+defects+`", threshold: 80}, shading: {file: "`+shading+`"},
 white_balance: {red: 1.5, blue: 1.1}, demosaic: bilinear, matrix: [[1.5, -0.3, -0.2], [-0.2, 1.5, -0.3], [0, -0.5, 1.5]],
 curve: [0, 0.5, 1], sharpen: 0.5, flip: horizontal, rotate: 90, workers: 2}`, "payload: raw", "payload: raw, pixels: rgb24", "name: raw,", "name: raw, scale: quarter,",
		"model: {width: 320, height: 240}", "file: {path: "+raw+", width: 320, height: 240, sensor: {mosaic: bggr, bits: 12, packed: true}}").Replace(good)
	d, err := Parse("c.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := isp.Config{
		Black:   [4]int{60, 61, 62, 63},
		Defects: isp.Defects{Pixels: []image.Point{{3, 4}, {5, 6}, {7, 8}, {9, 10}}, Threshold: 80},
		Shading: &isp.Shading{Columns: 2, Rows: 2, Gains: [4][]float64{{1, 1, 1, 1.5}, {1, 1, 1, 1.25}, {1, 1, 1, 1.25}, {1, 1, 1, 2}}},
		Gains:   isp.Gains{R: 1.5, B: 1.1}, Demosaic: isp.Bilinear, Matrix: [9]float64{1.5, -0.3, -0.2, -0.2, 1.5, -0.3, 0, -0.5, 1.5},
		Curve: []int{0, 2040, 4080}, Sharpen: 0.5, Turn: isp.NewTurn(true, false, 90), Workers: 2,
	}
	if !reflect.DeepEqual(d.Stages[0].Kind.(*ISP).config, want) {
		t.Errorf("%+v, want %+v", d.Stages[0].Kind.(*ISP).config, want)
	}
	in := d.Source("camera").Format
	out, _, err := d.Outputs[0].Formats(in)
	if err != nil || in.Pixel != pipeline.BGGR12P || out.Pixel != pipeline.RGB24 || out.Width != 60 || out.Height != 80 {
		t.Errorf("%v from %v, %v", out, in, err)
	}
	d, err = Parse("c.yaml", []byte(good))
	if err != nil || d.Stages[0].Kind.(*ISP).config.Demosaic != isp.Malvar {
		t.Errorf("the default is %v, %v", d.Stages[0].Kind.(*ISP).config.Demosaic, err)
	}
}

// TestTurnedPictures checks which pictures are turned on their side, and which leave as they arrive.
func TestTurnedPictures(t *testing.T) {
	for _, c := range []struct {
		turn           string
		turned, slices bool
	}{
		{"flip: none, rotate: 0", false, true},
		{"flip: horizontal", false, true},
		{"flip: vertical", false, false},
		{"flip: vertical, rotate: 180", false, true}, // the same as horizontal
		{"rotate: 180", false, false},
		{"rotate: 90", true, false},
		{"flip: horizontal, rotate: 270", true, false},
	} {
		text := strings.NewReplacer("{name: isp}", "{name: isp, "+c.turn+"}",
			"outputs:\n", `  - {name: late, from: focus, file: ../../../docs/kernels/focus.cu}
outputs:
  - {name: isp-raw, from: isp, rtp: {payload: raw}}
  - {name: half, from: isp, scale: half, rtp: {payload: h264}}
  - {name: clip, from: late, record: {directory: /tmp}}
  - {name: found, from: isp, results: {udp: ["127.0.0.1:5012"]}}
`).Replace(programtest.WithKernels)
		a, err := Parse("c.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		in := a.Source("camera").Format
		sizes := map[string][2]int{"isp-raw": {320, 240}, "half": {160, 120}, "clip": {320, 240}, "found": {80, 60}, "raw": {320, 240}}
		for name, size := range sizes {
			if c.turned {
				size = [2]int{size[1], size[0]}
			}
			if want, _, err := a.Output(name).Formats(in); err != nil || want.Width != size[0] || want.Height != size[1] {
				t.Errorf("%s: output %s: %v, %v, want %v", c.turn, name, want, err, size)
			}
			if v, _ := a.Output(name).View(in); v.Pixel != 0 && (v.Width > v.Height) == c.turned {
				t.Errorf("%s: output %s is viewed as %v", c.turn, name, v)
			}
		}
		for _, name := range []string{"motion", "focus"} {
			k := a.Stage(name).Kind.(*Kernel).Config()
			if f, err := k.Input(in); err != nil || (f.Width == 240 && f.Height == 320) != c.turned {
				t.Errorf("%s: kernel %s reads %v, %v", c.turn, name, f, err)
			}
		}
		if o := a.Output("isp-raw"); o.Slices != c.slices {
			t.Errorf("%s: leaves in slices: %v, %s", c.turn, o.Slices, o.Whole)
		}
	}
	// A height of 239 lines becomes a width that 4:2:2 has not.
	text := strings.NewReplacer("{name: isp}", "{name: isp, rotate: 90}", "height: 240", "height: 239").Replace(good)
	if _, err := Parse("c.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), "239x320: 4:2:2 needs an even width") {
		t.Errorf("an odd width: %v", err)
	}
}

// TestPicturesAreMadeWhileFramesArrive checks which outputs make their source hand on frames while they arrive.
func TestPicturesAreMadeWhileFramesArrive(t *testing.T) {
	film := programtest.Write(t, "x.raw", strings.Repeat("\x00", 320*240*2))
	for text, slices := range map[string]bool{
		"name: o, rtp: {payload: raw}":                                true,
		"name: o, rtp: {payload: h264}":                               true,
		"name: o, scale: half, rtp: {payload: jpeg}":                  true,
		"name: o, from: focus, rtp: {payload: raw}":                   true, // the isp before the kernel is ahead
		"name: o, latency: frame, rtp: {payload: h264}":               false,
		"name: o, record: {directory: /tmp}":                          false,
		"name: o, from: turned, rtp: {payload: h264}":                 false,
		"name: o, from: motion, results: {udp: [\"127.0.0.1:5010\"]}": false,
		"name: o, from: film-isp, rtp: {payload: h264}":               false,
	} {
		before, _, _ := strings.Cut(programtest.WithKernels, "outputs:")
		before = strings.NewReplacer("height: 240}}", "height: 240}}, {name: film, file: {path: "+film+", width: 320, height: 240}}",
			"{name: isp}", "{name: isp}, {name: turned, rotate: 180}, {name: film-isp, from: film}").Replace(before)
		a, err := Parse("c.yaml", []byte(before+"outputs: [{"+text+"}]\n"))
		if err != nil {
			t.Fatal(text, err)
		}
		if got := a.Source("camera").Slices; got != slices {
			t.Errorf("%s: slices %v, want %v", text, got, slices)
		}
	}
}

// Without the key queue, large and frequent frames get a longer queue. A given length is kept.
func TestTheDefaultQueueGrowsWithTheStream(t *testing.T) {
	for model, want := range map[string]int{
		"width: 1920, height: 1080, rate: 30": 2, "width: 1920, height: 1080, rate: 60": 2, "width: 1920, height: 1080, rate: 120": 3,
		"width: 1920, height: 1080, rate: 240": 4, "width: 1920, height: 1080, rate: 480": 6, "width: 1920, height: 1080, rate: 1000": 10,
	} {
		text := strings.Replace(good, "width: 320, height: 240", model, 1)
		for queue, want := range map[string]int{"": want, "queue: 3, ": 3} {
			a, err := Parse("c.yaml", []byte(strings.Replace(text, "name: raw,", "name: raw, "+queue, 1)))
			if err != nil {
				t.Fatal(err)
			}
			if got := a.Outputs[0].Depth; got != want {
				t.Errorf("%s, %q: %d frames may wait, want %d", model, queue, got, want)
			}
		}
	}
}
