// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/report"
	"github.com/tegracast/tegracast/pipeline/share"
)

const externalYAML = `
memory: host
web: {listen: %q}
rtsp: {listen: none}
sources: [{name: camera, model: {width: 320, height: 240, rate: 20}}]
isp: [{name: isp}]
external:
  - {name: samples, from: camera, socket: %q, deadline: 1s, policy: drop}
  - {name: pictures, pixels: rgb24, socket: %q, deadline: 50ms}
outputs:
  - {name: numbers, from: samples, results: {tcp: %q}}
  - {name: kept, from: samples, record: {directory: %q}}
  - {name: seen, from: pictures, results: {tcp: %q}}
  - {name: shared, from: pictures, share: {socket: %q}}
`

// TestExternalStage checks that another process reads frames where the FPGA has put them, and that what it returns goes
// out with the same frame: in results, in a recording, and to a third process. Without a process frames go on.
func TestExternalStage(t *testing.T) {
	dir := t.TempDir()
	web, numbers, seen := freePort(t), freePort(t), freePort(t)
	samples, pictures, shared := filepath.Join(dir, "samples"), filepath.Join(dir, "pictures"), filepath.Join(dir, "shared")
	path := programtest.Write(t, "external.yaml", fmt.Sprintf(externalYAML, web, samples, pictures, numbers, dir, seen, shared))
	serve := programtest.StartProgram(t, "serve", "--config", path)
	k := subscribes(t, share.ClientConfig{Socket: samples, Policy: pipeline.Block, Answers: true})
	stamps := make(chan error, 1)
	go func() {
		for n := 0; ; n++ {
			if n == 30 {
				stamps <- nil
			}
			f, err := k.Next(t.Context())
			if err == nil {
				err = answerStamp(f)
			}
			if err != nil {
				stamps <- err
				return
			}
		}
	}()
	lines := resultLines(t, numbers)
	for range 10 {
		r := lines()
		if len(r.Results) != 1 || r.Results[0].Stage != "samples" || r.Results[0].Numbers["stamp"] != float64(r.Frame) || r.Results[0].Tags["by"] != "test" {
			t.Fatalf("%+v", r)
		}
	}
	if err := <-stamps; err != nil {
		t.Fatal(err)
	}
	lines = resultLines(t, seen)
	for range 3 {
		if r := lines(); len(r.Results) != 0 {
			t.Errorf("without a process: %+v", r)
		}
	}
	python(t, pictures, lines)
	third := subscribes(t, share.ClientConfig{Socket: shared})
	if f, err := third.Next(t.Context()); err != nil || f.Format.Pixel != pipeline.RGB24 || len(f.Bytes) != 320*240*3 {
		t.Errorf("%v, %+v", err, f)
	}
	for _, line := range []string{
		`tegracast_external_connected{stage="samples"} 1`, `tegracast_external_connected{stage="pictures"} 0`,
		`tegracast_external_late_results_total{stage="samples"} 0`,
	} {
		if _, text := fetch(t, "http://"+web+"/metrics"); !strings.Contains(text, line) {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
	serve.Stop(t)
	if s := serve.Out.String(); !strings.Contains(s, "samples: ") || !strings.Contains(s, "frames with results") {
		t.Error(s)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.mcap"))
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	text, err := os.ReadFile(files[0])
	if err != nil || !strings.Contains(string(text), `"tags":{"by":"test"}`) {
		t.Errorf("the recording has no results: %v", err)
	}
}

// answerStamp returns the number in the pixels of a frame as a result, and gives the frame back.
func answerStamp(f *share.SharedFrame) error {
	stamp, err := model.ReadStamp(f.Bytes, fpga.FourCC(f.Format.Pixel))
	if err != nil {
		return err
	}
	if err := f.Respond(pipeline.Result{Numbers: map[string]float64{"stamp": float64(stamp)}, Tags: map[string]string{"by": "test"}}); err != nil {
		return err
	}
	return f.Release()
}

// resultLines connects to an output of results, and returns a function that reads its next line.
func resultLines(t *testing.T, address string) func() report.Report {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	in := bufio.NewScanner(c)
	return func() (r report.Report) {
		t.Helper()
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if !in.Scan() {
			t.Fatal(in.Err())
		}
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			t.Fatalf("%s: %v", in.Text(), err)
		}
		return r
	}
}

// python runs the client in Python on the pictures, until a line has its results, and kills it.
func python(t *testing.T, socket string, lines func() report.Report) {
	t.Helper()
	const program = `
import sys, numpy, tegracast_share
with tegracast_share.Client(sys.argv[1], results=True) as client:
    while True:
        with client.next() as frame:
            pixels = frame.array()
            assert pixels.shape == (240, 320, 3) and pixels.dtype == numpy.uint8, pixels.shape
            assert numpy.from_dlpack(frame).ctypes.data == pixels.ctypes.data
            frame.respond(regions=[{"x": 1, "y": 2, "width": 30, "height": 40, "label": "mean", "score": 0.5}],
                          numbers={"frame": frame.sequence}, tensors={"mean": pixels.reshape(-1, 3).mean(0).astype("float32")})
`
	c := exec.Command("/usr/bin/python3", "-c", program, socket) // Debian's, which has Debian's NumPy
	c.Env = append(os.Environ(), "PYTHONPATH=../../pipeline/share/python")
	var said strings.Builder
	c.Stderr = &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = c.Process.Kill(), c.Wait() }()
	for n := 0; ; n++ {
		r := lines()
		if len(r.Results) == 0 {
			if n == 1000 {
				t.Fatalf("no result comes from Python: %s", said.String())
			}
			continue
		}
		x := r.Results[0]
		if x.Stage != "pictures" || len(x.Regions) != 1 || x.Regions[0].Label != "mean" || x.Numbers["frame"] != float64(r.Frame) {
			t.Errorf("%+v", r)
		}
		if len(x.Tensors) != 1 || x.Tensors[0].Type != "float32" || len(x.Tensors[0].Data) != 12 || x.Began.IsZero() || x.Ended.Before(x.Began) {
			t.Errorf("%+v", r)
		}
		return
	}
}
