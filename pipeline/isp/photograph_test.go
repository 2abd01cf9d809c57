// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"context"
	"image"
	"image/png"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
)

// photograph returns a picture from Go's own tests: a film frame of 150x103 pixels.
func photograph(t *testing.T) image.Image {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(strings.TrimSpace(string(root)), "src/image/testdata/video-001.png"))
	if err != nil {
		t.Fatalf("this test needs the source tree of Go: %v", err)
	}
	defer f.Close()
	m, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestMalvarBeatsBilinear makes mosaics from a photograph, demosaics them, and compares luma with the photograph's.
func TestMalvarBeatsBilinear(t *testing.T) {
	m := photograph(t)
	w, h := m.Bounds().Dx()&^1, m.Bounds().Dy()&^1
	for mosaic, pixel := range []pipeline.PixelFormat{pipeline.RGGB8, pipeline.GRBG8, pipeline.GBRG8, pipeline.BGGR8} {
		in := frame(format(t, pixel, w, h))
		truth := make([]byte, 3*w*h)
		for y := range h {
			for x := range w {
				r, g, b, _ := m.At(x, y).RGBA()
				color := []uint32{r >> 8, g >> 8, b >> 8}
				which := int([]string{"0112", "1021", "1201", "2110"}[mosaic][y%2*2+x%2] - '0')
				in.Bytes[y*w+x] = byte(color[which])
				for c := range color {
					truth[3*(y*w+x)+c] = byte(color[c])
				}
			}
		}
		var db [2]float64
		for method := Bilinear; method <= Malvar; method++ {
			s := newStage(t, Config{Gamma: 1, Demosaic: method})
			_, outs := planned(t, s, in, full(pipeline.RGB24))
			if err := s.Process(context.Background(), in, outs); err != nil {
				t.Fatal(err)
			}
			db[method] = lumaPSNR(outs[0].Bytes, truth, w, h)
		}
		t.Logf("mosaic %s: bilinear %.1f dB, Malvar %.1f dB", pixel, db[Bilinear], db[Malvar])
		if db[Malvar] < db[Bilinear]+3 {
			t.Errorf("mosaic %s: bilinear %.1f dB, Malvar %.1f dB: less than 3 dB better", pixel, db[Bilinear], db[Malvar])
		}
	}
}

// lumaPSNR compares BT.709 luma, except for a border of four pixels.
func lumaPSNR(a, b []byte, w, h int) float64 {
	var sum, n float64
	for y := 4; y < h-4; y++ {
		for x := 4; x < w-4; x++ {
			var d float64
			for c, k := range []float64{0.2126, 0.7152, 0.0722} {
				i := 3*(y*w+x) + c
				d += k * (float64(a[i]) - float64(b[i]))
			}
			sum, n = sum+d*d, n+1
		}
	}
	return 10 * math.Log10(255*255*n/sum)
}
