// SPDX-License-Identifier: Apache-2.0

package preprocess

import (
	"encoding/json"
	"fmt"
	"image"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer/infertest"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

// A peer is a Python process with OpenCV and NumPy of Debian.
type peer struct {
	folder string
	in     io.Writer
	out    io.Reader
}

// openPeer starts the peer.
func openPeer(t testing.TB) *peer {
	t.Helper()
	in, out := infertest.StartPython(t, "testdata/opencv.py")
	var opencv, numpy string
	if _, err := fmt.Fscanln(out, &opencv, &numpy); err != nil {
		t.Fatalf("OpenCV does not start: %v", err)
	}
	t.Logf("OpenCV %s, NumPy %s", opencv, numpy)
	return &peer{t.TempDir(), in, out}
}

// A job is a line of the input of testdata/opencv.py.
type job struct {
	Pixels    string     `json:"pixels"`
	Tensor    string     `json:"tensor"`
	Way       string     `json:"way"` // blob, array or exact
	Frames    int        `json:"frames"`
	Format    string     `json:"format"`
	Width     int        `json:"width"`
	Height    int        `json:"height"`
	Stride    int        `json:"stride"`
	Crop      [4]int     `json:"crop"`
	Size      [2]int     `json:"size"`
	Channels  int        `json:"channels"`
	Letterbox bool       `json:"letterbox"`
	Fill      float64    `json:"fill"`
	BGR       bool       `json:"bgr"`
	Mean      [3]float64 `json:"mean"`
	Scale     float64    `json:"scale"`
}

// do has the peer make a tensor, and returns the processor time for one in nanoseconds.
func (p *peer) do(t testing.TB, c Config, pixels []byte, way string, frames int) (ns int64) {
	t.Helper()
	crop := c.Crop
	if crop.Empty() {
		crop = image.Rect(0, 0, c.Format.Width, c.Format.Height)
	}
	j := job{
		filepath.Join(p.folder, "pixels"), filepath.Join(p.folder, "tensor"), way, frames, c.Format.Pixel.String(), c.Format.Width, c.Format.Height,
		c.Format.Stride,
		[4]int{crop.Min.X, crop.Min.Y, crop.Max.X, crop.Max.Y},
		[2]int{c.Width, c.Height},
		c.Channels,
		c.Letterbox, c.Fill, c.BGR, c.Mean, c.Scale[0],
	}
	if pixels != nil {
		if err := os.WriteFile(j.Pixels, pixels, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(j)
	if err == nil {
		_, err = p.in.Write(append(text, '\n'))
	}
	if err == nil {
		_, err = fmt.Fscanln(p.out, &ns)
	}
	if err != nil {
		t.Fatalf("OpenCV, %s: %v", text, err)
	}
	return ns
}

// tensor returns the peer's tensor.
func (p *peer) tensor(t testing.TB, c Config, pixels []byte, way string) []float32 {
	t.Helper()
	p.do(t, c, pixels, way, 0)
	b, err := os.ReadFile(filepath.Join(p.folder, "tensor"))
	if err != nil {
		t.Fatal(err)
	}
	return elements[float32](b)
}

// videoFormat returns the format of a picture of 1920x1080 with the colours that OpenCV converts.
func videoFormat(pixel pipeline.PixelFormat) pipeline.Format {
	f, _ := pipeline.NewFormat(pixel, 1920, 1080, pipeline.Rate{})
	switch pixel {
	case pipeline.Grey:
	case pipeline.RGB24:
		f.Color = pipeline.BT601Full
	default:
		f.Color = pipeline.BT601Limited
	}
	return f
}

// TestTensorAgainstOpenCV compares tensors of a photograph and of a test chart with those of OpenCV's cvtColor, resize and
// blobFromImage, and with those of NumPy in float64. OpenCV's horizontal and vertical weights have 11 bits, and each of its
// steps rounds to 8 bits, so its samples may be wrong by 1, and with cvtColor, which rounds before resize does, by 2, and more
// where a pixel has no colour of R'G'B': OpenCV limits it before it scales, and Process does later.
func TestTensorAgainstOpenCV(t *testing.T) {
	peer := openPeer(t)
	for _, pixel := range formats {
		list := []Config{
			{Width: 500, Height: 300},
			{Width: 640, Height: 640, Letterbox: true, Fill: 114},
			{Width: 224, Height: 224, Crop: image.Rect(420, 0, 1500, 1080), BGR: true, Mean: [3]float64{104, 117, 123}},
			{Width: 299, Height: 150, Crop: image.Rect(101, 53, 300, 201), Letterbox: true, Mean: [3]float64{127.5, 127.5, 127.5}},
			{Width: 640, Height: 480, Crop: image.Rect(641, 301, 1281, 781), Mean: [3]float64{1, 2, 3}},
			{Width: 416, Height: 416, Channels: 1, Crop: image.Rect(7, 9, 1913, 1077)},
		}
		if planar(pixel) { // Process makes UYVY of them
			list = list[2:4]
		}
		format := videoFormat(pixel)
		pixels := picture1080(t, format)
		for _, c := range list {
			if c.Scale = [3]float64{1. / 255, 1. / 255, 1. / 255}; c.Channels == 0 {
				c.Channels = 3
			}
			if c.Type = tensor.Float32; pixel == pipeline.Grey {
				c.Channels, c.Mean[1], c.Mean[2], c.BGR = 1, 0, 0, false
			}
			c.Format = format
			got := make([]byte, 4*c.Channels*c.Width*c.Height)
			preprocessor(t, c).Process(pixels, got)
			for _, way := range []string{"blob", "array", "exact"} {
				most, mean, far := 1.0, 0.3, 0.0
				switch converted := pixel != pipeline.Grey && (pixel != pipeline.RGB24 || c.Channels == 1); {
				case way == "exact":
					most, mean = 0.02, 0.003
				case converted:
					most, mean, far = 2, 0.5, 0.002
				}
				beyond, average := difference(t, elements[float32](got), peer.tensor(t, c, pixels, way), c.Scale[0], most)
				t.Logf("%s to %dx%d, %s: %.3f samples on average, %.4f %% of the values by more than %v", pixel, c.Width, c.Height, way, average, 100*beyond, most)
				if average > mean || beyond > far {
					t.Errorf("%+v, %s: %.4f samples on average, want %v; %.4f of the values by more than %v", c, way, average, mean, beyond, most)
				}
			}
		}
	}
}

// difference returns how many of the values differ by more than most samples, and the average difference in samples.
func difference(t testing.TB, a, b []float32, scale, most float64) (beyond, average float64) {
	t.Helper()
	if len(a) != len(b) {
		t.Fatalf("%d values, OpenCV has %d", len(a), len(b))
	}
	for i := range a {
		d := math.Abs(float64(a[i])-float64(b[i])) / scale
		average += d / float64(len(a))
		if !(d <= most) {
			beyond += 1 / float64(len(a))
		}
	}
	return beyond, average
}
