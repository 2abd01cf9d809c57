// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
)

// TestV4L2Config checks what a camera of V4L2 is asked for: samples for an isp, named pictures, or what it is set to.
func TestV4L2Config(t *testing.T) {
	const text = `
sources:
  - {name: csi, v4l2: {device: /dev/video0, width: 1920, height: 1080, sensor: {mosaic: gbrg, bits: 12, packed: true}, controls: {test_pattern: "1", flip: "true"}}}
  - {name: usb, v4l2: {device: /dev/v4l/by-id/usb-a, pixels: uyvy, width: 640, height: 480, rate: 60}}
  - {name: any, v4l2: {device: /dev/video7}}
isp: [{name: isp, from: csi, auto: {exposure: {}}}]
outputs: [{name: out, from: isp, rtp: {payload: raw, destinations: ["127.0.0.1:5004"]}}]
`
	a, err := Parse("c.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		pixel pipeline.PixelFormat
		known bool
		rate  pipeline.Rate
	}{{pipeline.GBRG12P, true, pipeline.Rate{Num: 30, Den: 1}}, {pipeline.UYVY, true, pipeline.Rate{Num: 60, Den: 1}}, {0, false, pipeline.Rate{}}}
	for i, w := range want {
		s := &a.Sources[i]
		k := s.Kind.(*V4L2)
		if k.Pixel() != w.pixel || s.FormatKnown != w.known || k.Rate.V != w.rate || w.known && s.Format.Pixel != w.pixel || !s.Paged() {
			t.Errorf("%s: %s, known %t (%s), rate %s", s.Name, k.Pixel(), s.FormatKnown, s.Format, k.Rate.V)
		}
	}
	if c := a.Sources[0].Kind.(*V4L2).Controls; c["test_pattern"] != "1" || c["flip"] != "true" {
		t.Errorf("controls %v", c)
	}
}

// TestSourcesOfPictures checks what can be read from a camera that delivers pictures, or JPEG files, and what an isp says to
// settings that are for samples.
func TestSourcesOfPictures(t *testing.T) {
	parse := func(pixels, rest string) error {
		_, err := Parse("c.yaml", []byte("sources: [{name: usb, v4l2: {device: /dev/video0, width: 640, height: 480, pixels: "+pixels+"}}]\n"+rest))
		return err
	}
	out := func(from, kind string) string { return "outputs: [{name: out, from: " + from + ", " + kind + "}]\n" }
	raw, jpeg, h264 := `rtp: {payload: raw}`, `rtp: {payload: jpeg}`, `rtp: {payload: h264}`
	isp := "isp: [{name: isp, from: usb}]\n"
	for _, c := range []struct{ pixels, rest, err string }{
		{"mjpeg", out("usb", jpeg), ""},
		{"uyvy", out("usb", raw), ""},
		{"mjpeg", isp + out("isp", h264), ""},
		{"nv12", isp + out("isp", jpeg+", scale: half"), ""},
		{"rgb", isp + out("isp", `rtp: {payload: raw, pixels: rgb24}`), ""},
		{"mjpeg", isp + `outputs: [{name: a, from: usb, rtp: {payload: jpeg}}, {name: b, from: isp, rtp: {payload: raw}}]`, ""},
		{"mjpeg", out("usb", raw), `source "usb" delivers MJPG, but the output sends UYVY: add an isp with from: usb`},
		{"mjpeg", out("usb", h264), "delivers MJPG, but the output sends YU12"},
		{"uyvy", out("usb", jpeg), "delivers UYVY, but the output sends YU12"},
		{"mjpeg", out("usb", "record: {directory: /tmp}"), "delivers JPEG files, which an isp decodes"},
		{"mjpeg", out("usb", "share: {socket: /tmp/s}"), "delivers JPEG files, which an isp decodes"},
		{"mjpeg", out("usb", jpeg+", scale: half"), "cannot be scaled"},
		{"mjpeg", "memory: auto\nkernels: [{name: k, from: usb, file: /dev/null}]\n" + out("k", raw), "delivers JPEG files, which an isp decodes"},
		{"mjpeg", "external: [{name: e, from: usb, socket: /tmp/e}]\n" + out("e", jpeg), "delivers JPEG files, which an isp decodes"},
		{"uyvy", "isp: [{name: isp, from: usb, black_level: 64}]\n" + out("isp", raw), "\"usb\" delivers pictures, which are converted only: leave black_level out"},
		{"uyvy", "isp: [{name: isp, from: usb, auto: {exposure: {}}}]\n" + out("isp", raw), "leave auto out"},
		{"uyvy", "memory: auto\nisp: [{name: isp, from: usb, device: cuda}]\n" + out("isp", raw), "pictures are converted by the CPU"},
		{"uyvy", isp + out("isp", `rtp: {payload: raw, pixels: uyvp}`), "leave pixels: uyvp out"},
	} {
		if err := parse(c.pixels, c.rest); (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s, %s: %v, want %q", c.pixels, c.rest, err, c.err)
		}
	}
	_, err := Parse("c.yaml", []byte("sources: [{name: usb, v4l2: {device: /dev/video0, pixels: mjpeg}}]\n"+out("usb", jpeg)))
	if err == nil || !strings.Contains(err.Error(), "give width and height of the JPEG files") {
		t.Error(err)
	}
}

// TestShiftIsForWords checks that a shift beyond the samples' words, and one that would have no effect, are refused.
func TestShiftIsForWords(t *testing.T) {
	for sensor, ok := range map[string]bool{
		"sensor: {bits: 12}, shift: 4": true, "sensor: {bits: 12}, shift: 5": false, "sensor: {bits: 14}, shift: 2": true, "sensor: {bits: 14}, shift: 3": false,
		"sensor: {bits: 12, packed: true}, shift: 2": false, "sensor: {bits: 8}, shift: 8": false, "pixels: uyvy, shift: 1": false, "pixels: uyvy, shift: 0": true,
	} {
		_, err := Parse("c.yaml", []byte("sources: [{name: csi, v4l2: {device: /dev/video0, width: 640, height: 480, "+sensor+"}}]\n"+
			"outputs: [{name: out, from: csi, results: {udp: [\"127.0.0.1:5004\"]}}]\n"))
		if got := err == nil || !strings.Contains(err.Error(), "v4l2.shift"); got != ok {
			t.Errorf("%s: %v", sensor, err)
		}
	}
}
