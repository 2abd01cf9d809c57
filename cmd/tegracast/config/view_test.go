// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"

	"github.com/tegracast/tegracast/pipeline"
)

// TestPicturesBehindAStage checks of what pictures for viewing are made: of the frames of a stage that passes them on, or by
// the isp.
func TestPicturesBehindAStage(t *testing.T) {
	a, err := Parse("c.yaml", []byte(`
sources: [{name: camera, model: {width: 1872, height: 1078}}]
isp: [{name: isp}]
external:
  - {name: model, pixels: uyvy, socket: /run/tegracast/model}
  - {name: second, from: model, socket: /run/tegracast/second}
  - {name: samples, from: camera, socket: /run/tegracast/samples}
outputs:
  - {name: own, rtp: {payload: raw, destinations: ["127.0.0.1:5004"]}}
  - {name: behind, from: second, rtp: {payload: raw, destinations: ["127.0.0.1:5006"]}}
  - {name: numbers, from: samples, results: {tcp: "127.0.0.1:5010"}}
  - {name: kept, from: camera, record: {directory: /tmp}}
`))
	if err != nil {
		t.Fatal(err)
	}
	in := a.Source("camera").Format
	for name, want := range map[string]struct {
		width, height int
		from          pipeline.PixelFormat
	}{
		"own": {1872, 1078, 0}, "behind": {936, 538, pipeline.UYVY}, "numbers": {936, 538, in.Pixel}, "kept": {},
	} {
		view, from := a.Output(name).View(in)
		if view.Width != want.width || view.Height != want.height || from != want.from {
			t.Errorf("%s: %v of %v, want %v", name, view, from, want)
		}
	}
}
