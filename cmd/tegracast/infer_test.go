// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer"
	"github.com/tegracast/tegracast/pipeline/infer/infertest"
	"github.com/tegracast/tegracast/pipeline/infer/onnxruntime"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
	"github.com/tegracast/tegracast/pipeline/share"
)

const inferYAML = `
memory: host
web: {listen: %q}
rtsp: {listen: none}
sources: [{name: camera, model: {width: 640, height: 480, rate: 5}}]
isp: [{name: isp}]
infer:
  - name: text
    pixels: rgb24
    model: %q
    library: %q
    input: {size: [320, 256], letterbox: true, mean: [123.675, 116.28, 103.53], scale: [0.01712475, 0.017507, 0.01742919]}
    output: {kind: heatmap, threshold: 0.3, expand: 1.5}
    deadline: 1s
outputs:
  - {name: shared, from: text, share: {socket: %q}}
  - {name: seen, from: text, results: {tcp: %q}}
`

// TestInferStage checks a text detector that others have made: a consumer behind the stage gets with each frame the
// regions that a session of its own finds in that frame's pixels. When the model's process is killed, frames go on.
func TestInferStage(t *testing.T) {
	dir := t.TempDir()
	web, seen, socket := freePort(t), freePort(t), filepath.Join(dir, "shared")
	library := infertest.Library(t, infertest.Oldest, runtime.GOARCH)
	path := programtest.Write(t, "infer.yaml", fmt.Sprintf(inferYAML, web, infertest.Model(t, infertest.Detector), library, socket, seen))
	serve := programtest.StartProgram(t, "serve", "--config", path)
	k := subscribes(t, share.ClientConfig{Socket: socket})
	w := newWitness(t, path, k.Format())
	w.compare(t, k, 3)

	process := modelProcess(t, serve)
	lines := resultLines(t, seen)
	first := lines()
	if err := syscall.Kill(process, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for last := first.Frame; last < first.Frame+10; {
		r := lines()
		if r.Frame != last+1 {
			t.Errorf("frame %d after frame %d", r.Frame, last)
		}
		last = r.Frame
	}
	w.compare(t, k, 1)
	if modelProcess(t, serve) == process {
		t.Error("the process that was killed runs")
	}
	_, text := fetch(t, "http://"+web+"/metrics")
	for begin := time.Now(); strings.Contains(text, `tegracast_infer_frames_total{stage="text"} 0`); _, text = fetch(t, "http://"+web+"/metrics") {
		if time.Since(begin) > time.Minute {
			t.Fatal("no frame is counted in a minute")
		}
		time.Sleep(100 * time.Millisecond) // the process reports once a second
	}
	for _, line := range []string{
		`tegracast_infer_running{provider="cpu",stage="text"} 1`, `tegracast_infer_starts_total{stage="text"} 2`,
		`tegracast_infer_failed_frames_total{stage="text"} 0`, `tegracast_external_connected{stage="text"} 1`,
	} {
		if !strings.Contains(text, line) {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
	serve.Stop(t)
	if out := serve.Out.String(); !strings.Contains(out, "text: running with cpu; a frame takes ") {
		t.Error(out)
	}
}

// modelProcess waits until serve has one child, and returns its number.
func modelProcess(t *testing.T, serve *programtest.Process) (pid int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		children, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", serve.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		var all string
		for _, c := range children {
			text, _ := os.ReadFile(c) // a thread may have ended
			all += string(text)
		}
		if n, _ := fmt.Sscan(all, &pid); n == 1 && pid != 0 {
			return pid
		}
		if time.Now().After(end) {
			t.Fatal("in a minute no process of the model")
		}
	}
}

// A witness runs a model in the process of the test.
type witness struct {
	plan    *infer.Plan
	format  pipeline.Format
	session *onnxruntime.Session
	input   tensor.Tensor
}

func newWitness(t *testing.T, path string, f pipeline.Format) *witness {
	t.Helper()
	c, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	cfg := c.Stage("text").Kind.(*config.Infer).Config().Infer
	w := &witness{format: f}
	if w.plan, err = infer.NewPlan(cfg); err != nil {
		t.Fatal(err)
	}
	r, err := onnxruntime.Open(cfg.Library)
	if err != nil {
		t.Fatal(err)
	}
	if w.session, err = r.NewSession(t.Context(), onnxruntime.SessionConfig{Model: cfg.Model}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.session.Close() })
	if w.input, err = w.session.BindInput(w.plan.Input); err != nil {
		t.Fatal(err)
	}
	return w
}

// regions returns the regions in the pixels of a frame.
func (w *witness) regions(t *testing.T, pixels []byte) []pipeline.Region {
	t.Helper()
	pre, err := w.plan.Preprocessor(w.format)
	if err != nil {
		t.Fatal(err)
	}
	post, err := w.plan.Postprocessor(w.format)
	if err != nil {
		t.Fatal(err)
	}
	pre.Process(pixels, w.input.Data)
	outputs, err := w.session.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var r pipeline.Result
	if err := post.Process(outputs, pre.Placement(), &r); err != nil {
		t.Fatal(err)
	}
	return r.Regions
}

// compare compares n frames that have regions.
func (w *witness) compare(t *testing.T, k *share.Client, n int) {
	t.Helper()
	for compared, tried := 0, 0; compared < n; tried++ {
		f, err := k.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if tried == 1000 {
			t.Fatal("1000 frames have no regions")
		}
		if len(f.Results) == 1 && len(f.Results[0].Regions) > 0 {
			want := w.regions(t, f.Bytes)
			for i := range want {
				want[i].Score = min(want[i].Score, 1)
			}
			if got := f.Results[0].Regions; !reflect.DeepEqual(got, want) {
				t.Errorf("frame %d has the regions %+v, and its pixels have %+v", f.Sequence, got, want)
			}
			compared++
		}
		if err := f.Release(); err != nil {
			t.Fatal(err)
		}
	}
}
