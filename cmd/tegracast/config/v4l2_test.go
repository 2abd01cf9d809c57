// SPDX-License-Identifier: Apache-2.0

package config

import (
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
	}{{pipeline.GBRG12P, true, pipeline.Rate{Num: 30, Den: 1}}, {pipeline.UYVY, false, pipeline.Rate{Num: 60, Den: 1}}, {0, false, pipeline.Rate{}}}
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
