// SPDX-License-Identifier: Apache-2.0

package infer

import (
	"encoding/json"
	"image"
	"image/draw"
	_ "image/png"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer/infertest"
	"github.com/tegracast/tegracast/pipeline/infer/onnxruntime"
	"github.com/tegracast/tegracast/pipeline/infer/postprocess"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

// pictures are a photograph of Go's own tests, and a drawing with much text of a module that this one needs.
var pictures = map[string][2]string{
	"photograph": {"GOROOT", "src/image/testdata/video-001.png"},
	"drawing":    {"github.com/go-json-experiment/json", "api.png"},
}

// readPicture returns a picture as RGB24.
func readPicture(t *testing.T, from [2]string) (pixels []byte, f pipeline.Format) {
	t.Helper()
	list := []string{"env", "GOROOT"}
	if from[0] != "GOROOT" {
		list = []string{"list", "-m", "-f", "{{.Dir}}", from[0]}
	}
	root, err := exec.Command("go", list...).Output()
	if err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(filepath.Join(strings.TrimSpace(string(root)), from[1]))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	m, _, err := image.Decode(in)
	if err != nil {
		t.Fatal(err)
	}
	w, h := m.Bounds().Dx()&^1, m.Bounds().Dy()
	rgba := image.NewRGBA(image.Rect(0, 0, w, h))
	draw.Draw(rgba, rgba.Bounds(), image.White, image.Point{}, draw.Src)
	draw.Draw(rgba, rgba.Bounds(), m, m.Bounds().Min, draw.Over)
	for i := 0; i < len(rgba.Pix); i += 4 {
		pixels = append(pixels, rgba.Pix[i:i+3]...)
	}
	f, err = pipeline.NewFormat(pipeline.RGB24, w, h, pipeline.Rate{})
	if err != nil {
		t.Fatal(err)
	}
	return pixels, f
}

// detect runs the detector on a picture, and returns its input, its output, and the regions in pixels of the output.
func detect(t *testing.T, library string, pixels []byte, f pipeline.Format) (input, heat tensor.Tensor, regions []pipeline.Region) {
	t.Helper()
	plan, err := NewPlan(Config{
		Model: infertest.Model(t, infertest.Detector),
		Input: Input{
			Width: 640, Height: 480, Mean: [3]float64{123.675, 116.28, 103.53}, Scale: [3]float64{0.01712475, 0.017507, 0.01742919},
		},
		Output: Output{Kind: postprocess.HeatMap, Threshold: 0.3},
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := onnxruntime.Open(library)
	if err != nil {
		t.Fatal(err)
	}
	e := &cpu{plan: plan}
	s, err := r.NewSession(t.Context(), onnxruntime.SessionConfig{Model: plan.config.Model, Threads: 2, Bind: e.bind, Shape: plan.Input.Shape})
	if err == nil {
		err = e.start(f)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	e.pre.Process(pixels, e.input.Data)
	outputs, err := s.Run(t.Context())
	if err != nil || len(outputs) != 1 {
		t.Fatalf("%v, %d outputs", err, len(outputs))
	}
	post, err := plan.Postprocessor(pipeline.Format{})
	if err != nil {
		t.Fatal(err)
	}
	var found pipeline.Result
	if err := post.Process(outputs, tensor.Placement{ScaleX: 1, ScaleY: 1, Width: 640, Height: 480}, &found); err != nil {
		t.Fatal(err)
	}
	return e.input, outputs[0], found.Regions
}

// TestDetectorOnPictures runs a detector of text that others have made on pictures that others have made: its input must be
// OpenCV's, but for the rounding of OpenCV's resize, its output that of another release of ONNX Runtime, and its regions
// those of OpenCV's contours in that output.
func TestDetectorOnPictures(t *testing.T) {
	if folder := os.Getenv("TEGRACAST_MAPS"); folder != "" { // another release needs another process
		for name, from := range pictures {
			pixels, f := readPicture(t, from)
			_, heat, _ := detect(t, infertest.Library(t, infertest.Newest, runtime.GOARCH), pixels, f)
			if err := os.WriteFile(filepath.Join(folder, name), heat.Data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	python := infertest.Python(t)
	maps := t.TempDir()
	other := exec.Command("/proc/self/exe", "-test.run=^TestDetectorOnPictures$")
	other.Env = append(os.Environ(), "TEGRACAST_MAPS="+maps)
	if out, err := other.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, from := range pictures {
		t.Run(name, func(t *testing.T) {
			pixels, f := readPicture(t, from)
			input, heat, regions := detect(t, infertest.Library(t, infertest.Oldest, runtime.GOARCH), pixels, f)
			b, err := os.ReadFile(filepath.Join(maps, name))
			if err != nil || len(b) != len(heat.Data) {
				t.Fatal(err, len(b))
			}
			worst := 0.0
			for i, v := range unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), len(b)/4) {
				worst = max(worst, math.Abs(float64(v-heat.Float32s()[i])))
			}
			var seen struct {
				Difference float64
				Regions    [][5]float64
			}
			askDetector(t, python, f, map[string][]byte{"picture": pixels, "tensor": input.Data, "map": heat.Data}, &seen)
			t.Logf("%d x %d: input within %.2f samples of OpenCV's, map within %.1e of release %s, %d regions",
				f.Width, f.Height, seen.Difference, worst, infertest.Newest, len(regions))
			if worst > 1e-3 || seen.Difference > 1 {
				t.Error("these are not the same")
			}
			compareContours(t, regions, seen.Regions)
		})
	}
}

// askDetector has testdata/detector.py look at the files of a picture.
func askDetector(t *testing.T, python string, f pipeline.Format, files map[string][]byte, answer any) {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command(python, "-B", "testdata/detector.py", filepath.Join(dir, "picture"), strconv.Itoa(f.Width), strconv.Itoa(f.Height),
		filepath.Join(dir, "tensor"), "640", "480", filepath.Join(dir, "map"), "0.3").Output()
	if err == nil {
		err = json.Unmarshal(out, answer)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// compareContours compares regions with those of OpenCV's contours.
func compareContours(t *testing.T, regions []pipeline.Region, contours [][5]float64) {
	t.Helper()
	if len(regions) != len(contours) {
		t.Errorf("%d regions, and OpenCV finds %d", len(regions), len(contours))
	}
	for _, r := range regions {
		if !slices.ContainsFunc(contours, func(c [5]float64) bool {
			return [4]float64(c[:4]) == [4]float64{float64(r.X), float64(r.Y), float64(r.Width), float64(r.Height)} && math.Abs(c[4]-r.Score) < 1e-5
		}) {
			t.Errorf("OpenCV does not find %+v", r)
		}
	}
}
