// SPDX-License-Identifier: Apache-2.0

package postprocess

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

// FuzzProcess gives any data to each kind of output, and checks that the results can be encoded and are within the limits.
func FuzzProcess(f *testing.F) {
	for kind := range uint8(3) {
		f.Add(kind, 0.5, 0.5, int8(8), bytesOf([]float32{0.1, 0.9, 2, nan, inf, -inf, 3, 1, 0.5, 0.25, 4, 4, 9, 9, 0.75, 0.125}), 1.0, -20.0, 64, 48)
	}
	f.Fuzz(func(t *testing.T, kind uint8, threshold, more float64, width int8, data []byte, scale, x float64, frameWidth, frameHeight int) {
		data = bytesOf(append([]int64(nil), tensorOf(data)...)) // aligned
		n := len(data) / 4
		c := Config{Threshold: threshold, Width: frameWidth, Height: frameHeight}
		var outputs []tensor.Tensor
		switch w := int(width); kind % 3 {
		case 0:
			c.Kind, c.Outputs, outputs = Classes, []tensor.Info{info("out", tensor.Float32, -1)}, []tensor.Tensor{floats("out", nil, n)}
		case 1:
			c.Kind, c.Expand, c.Outputs = HeatMap, more, []tensor.Info{info("map", tensor.Float32, -1, -1)}
			outputs = []tensor.Tensor{floats("map", nil, n/max(w, 1), w)}
		default:
			c.Kind, c.NMS, c.Outputs = Detections, more, detectionInfos
			outputs = detected(nil, nil, nil)
			n = n / 8 * 8 / 7 // 4 + 1 + 2 words for each
			outputs[0].Shape[0], outputs[1].Shape[0], outputs[2].Shape[0] = int64(n), int64(n), int64(n)
		}
		for i := range outputs {
			if size, err := outputs[i].Bytes(int64(len(data))); err == nil {
				outputs[i].Data, data = data[:size:size], data[size:]
			}
		}
		p, err := New(c)
		if err != nil {
			return
		}
		var got pipeline.Result
		if p.Process(outputs, tensor.Placement{X: x, Y: -x, ScaleX: scale, ScaleY: scale, Width: 320, Height: 240}, &got) != nil {
			return
		}
		if _, err := json.Marshal(got); err != nil || len(got.Regions) > maxRegions || len(got.Numbers) > 6 {
			t.Fatalf("%v, %d regions, %d numbers", err, len(got.Regions), len(got.Numbers))
		}
		for _, r := range got.Regions {
			if r.X < 0 || r.Y < 0 || r.Width <= 0 || r.Height <= 0 || frameWidth > 0 && r.X+r.Width > frameWidth || frameHeight > 0 && r.Y+r.Height > frameHeight ||
				!(r.Score >= 0 && r.Score <= 1) {
				t.Fatalf("%+v in %d x %d", r, frameWidth, frameHeight)
			}
		}
	})
}

// tensorOf returns whole words of data.
func tensorOf(data []byte) []int64 {
	words := make([]int64, len(data)/8)
	copy(bytesOf(words), data)
	return words
}

// FuzzLabels checks that labels which are accepted are within the limits and are the lines of the text.
func FuzzLabels(f *testing.F) {
	for _, text := range []string{"", "a\nb", "a\r\n\r\nb\r\n", "\uFEFFa\n", "\xff", strings.Repeat("x", 300), strings.Repeat("\n", 70_000)} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		labels, err := parseLabels(bytes.NewReader(text))
		if err != nil {
			return
		}
		for _, l := range labels {
			if len(l) > maxLabel || !utf8.ValidString(l) || strings.Contains(l, "\n") {
				t.Fatalf("%q", l)
			}
		}
		lines := strings.Split(strings.TrimSuffix(strings.TrimPrefix(string(text), "\uFEFF"), "\n"), "\n")
		for i := range lines {
			lines[i] = strings.TrimSuffix(lines[i], "\r")
		}
		if strings.Join(lines, "\n") != strings.Join(labels, "\n") {
			t.Fatalf("%q are %q", text, labels)
		}
	})
}
