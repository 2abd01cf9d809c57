// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/share"
)

// TestGPUTorchModel exports a detector of torchvision and runs it for a minute on 1080p60 that the GPU makes. The regions
// of frames must be those that PyTorch itself finds in their pixels, and no frame may be lost.
func TestGPUTorchModel(t *testing.T) {
	needGPU(t)
	if out, err := exec.Command("python3", "-c", "import torchvision, onnxruntime").CombinedOutput(); err != nil {
		t.Skipf("NEEDS PyTorch with torchvision, and ONNX Runtime for Python: %s", out)
	}
	root := "../.."
	if _, err := os.Stat("pipeline"); err == nil { // gpu-test runs in the root of the tree
		root = "."
	}
	export := filepath.Join(root, "cmd/tegracast/testdata/export.py")
	library, err := exec.Command("python3", "-c", `
import glob, os, onnxruntime
print(glob.glob(os.path.join(os.path.dirname(onnxruntime.__file__), "capi", "libonnxruntime.so.*"))[0])`).Output()
	if err != nil {
		t.Fatal(err)
	}
	dir, address := t.TempDir(), freePort(t)
	model, socket := filepath.Join(dir, "ssd.onnx"), filepath.Join(dir, "shared")
	if out, err := exec.Command("python3", export, model).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	path := programtest.Write(t, "ssd.yaml", fmt.Sprintf(`
memory: cuda
web: {listen: none}
rtsp: {listen: none}
sources: [{name: camera, model: {rate: 60}}]
isp: [{name: isp}]
infer:
  - name: things
    pixels: rgb24
    model: %q
    library: %q
    input: {scale: [0.00392156863]}
    output: {kind: detections, threshold: 0.3}
outputs:
  - {name: shared, from: things, share: {socket: %q}}
  - {name: seen, from: things, results: {tcp: %q}}
`, model, strings.TrimSpace(string(library)), socket, address))
	serve := programtest.StartProgram(t, "serve", "--config", path)
	k := subscribes(t, share.ClientConfig{Socket: socket})
	for range 5 {
		f := frameWithRegions(t, k, serve)
		pixels := filepath.Join(dir, "frame")
		if err := os.WriteFile(pixels, f.Bytes, 0o600); err != nil {
			t.Fatal(err)
		}
		regions := f.Results[0].Regions
		if err := f.Release(); err != nil {
			t.Fatal(err)
		}
		text, err := exec.Command("python3", export, model, pixels, strconv.Itoa(k.Format().Width), strconv.Itoa(k.Format().Height)).Output()
		var want [][6]float64
		if err == nil {
			err = json.Unmarshal(text, &want)
		}
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		compareRegions(t, regions, want)
	}
	lines := resultLines(t, address)
	first, answered := lines().Frame, 0
	var waits, begins []time.Duration
	for last := first; last < first+60*60; {
		r := lines()
		if r.Frame != last+1 {
			t.Errorf("frame %d after frame %d", r.Frame, last)
		}
		if last = r.Frame; len(r.Results) > 0 {
			answered++
			waits, begins = append(waits, r.Results[0].Ended.Sub(r.Captured)), append(begins, r.Results[0].Began.Sub(r.Captured))
		}
	}
	slices.Sort(waits)
	slices.Sort(begins)
	if answered < 60 {
		t.Fatalf("%d of 3600 frames have results", answered)
	}
	t.Logf("a minute: %d of 3600 frames with results; from the beginning of the exposure to the model's process p50 %v, p99 %v, to the result p50 %v, p99 %v",
		answered, begins[answered/2], begins[answered*99/100], waits[answered/2], waits[answered*99/100])
	serve.Stop(t)
	for line := range strings.Lines(serve.Out.String()) {
		t.Log(strings.TrimSpace(line))
	}
	if !strings.Contains(serve.Out.String(), "lost 0") {
		t.Error("frames are lost")
	}
}

// frameWithRegions returns the next frame that has regions.
func frameWithRegions(t *testing.T, k *share.Client, serve *programtest.Process) *share.SharedFrame {
	t.Helper()
	for range 3600 {
		f, err := k.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Results) > 0 && len(f.Results[0].Regions) > 0 {
			return f
		}
		if err := f.Release(); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("3600 frames have no regions: %s", serve.Err.String())
	return nil
}

// compareRegions compares regions with boxes that PyTorch has found. Scores near the threshold may be on either side.
func compareRegions(t *testing.T, regions []pipeline.Region, boxes [][6]float64) {
	t.Helper()
	near := func(r pipeline.Region, b [6]float64) bool {
		d := math.Max(math.Abs(float64(r.X)-b[0]), math.Abs(float64(r.Y)-b[1]))
		d = math.Max(d, math.Max(math.Abs(float64(r.X+r.Width)-b[2]), math.Abs(float64(r.Y+r.Height)-b[3])))
		return d <= 2 && r.Label == fmt.Sprintf("class %.0f", b[4]) && math.Abs(r.Score-b[5]) < 0.005
	}
	for _, r := range regions {
		if r.Score > 0.31 && !slices.ContainsFunc(boxes, func(b [6]float64) bool { return near(r, b) }) {
			t.Errorf("%+v is none of PyTorch's", r)
		}
	}
	for _, b := range boxes {
		if b[5] > 0.31 && !slices.ContainsFunc(regions, func(r pipeline.Region) bool { return near(r, b) }) {
			t.Errorf("PyTorch's %v is missing", b)
		}
	}
	t.Logf("%d regions, and PyTorch finds %d", len(regions), len(boxes))
}
