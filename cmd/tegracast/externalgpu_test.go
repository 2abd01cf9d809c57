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
	"sync/atomic"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/report"
)

// TestGPUTorch has PyTorch detect objects in another process, in frames of 1080p60 in CUDA's memory, where they lie: for
// a minute, and then it and a light process are killed again and again. Each frame must go on, in order, with the
// results of the same frame or with none.
func TestGPUTorch(t *testing.T) {
	needGPU(t)
	if out, err := exec.Command("python3", "-c", "import torchvision").CombinedOutput(); err != nil {
		t.Skipf("NEEDS PyTorch with torchvision: %s", out)
	}
	dir, address := t.TempDir(), freePort(t)
	socket := filepath.Join(dir, "model")
	serve := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "torch.yaml", fmt.Sprintf(`
memory: cuda
web: {listen: none}
rtsp: {listen: none}
sources: [{name: camera, model: {rate: 60}}]
external: [{name: model, from: camera, socket: %q}]
outputs: [{name: lines, from: model, results: {tcp: %q}}]
`, socket, address)))
	root := "../.."
	if _, err := os.Stat("pipeline"); err == nil { // gpu-test runs in the root of the tree
		root = "."
	}
	detector := filepath.Join(root, "cmd/tegracast/testdata/detect.py")
	python := func(args ...string) (*exec.Cmd, *bufio.Scanner) {
		t.Helper()
		c := exec.Command("python3", args...)
		c.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(root, "pipeline/share/python"))
		out, err := c.StdoutPipe()
		if err == nil {
			c.Stderr = os.Stderr
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill() })
		return c, bufio.NewScanner(out)
	}
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			break
		}
		if time.Since(begin) > time.Minute {
			t.Fatal(serve.Err.String())
		}
	}
	lines, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer lines.Close()
	var frames, answered, wrong, gaps atomic.Uint64
	go func() {
		last, in := uint64(0), json.NewDecoder(lines)
		for {
			var r report.Report
			if in.Decode(&r) != nil {
				return
			}
			if last > 0 && r.Frame != last+1 {
				gaps.Add(1)
			}
			last = r.Frame
			frames.Add(1)
			if len(r.Results) > 0 {
				answered.Add(1)
				if n, there := r.Results[0].Numbers["stamp"]; there && n != float64(r.Frame) {
					wrong.Add(1)
				}
			}
		}
	}()
	tell := func(what string) {
		t.Helper()
		t.Logf("%s: %d frames, %d with results, %d of them of another frame, %d gaps", what, frames.Swap(0), answered.Swap(0), wrong.Load(), gaps.Load())
		if wrong.Load()+gaps.Load() > 0 {
			t.Errorf("%s: %d wrong, %d gaps", what, wrong.Load(), gaps.Load())
		}
	}
	c, said := python(detector, socket, "60")
	said.Scan()
	frames.Store(0)
	said.Scan()
	t.Log(said.Text())
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	if answered.Load() < 600 {
		t.Errorf("%d frames have results in a minute", answered.Load())
	}
	tell("a minute of PyTorch")
	for i := range 5 {
		c, said := python(detector, socket, "60")
		said.Scan()
		time.Sleep(time.Duration(200+i*150) * time.Millisecond)
		_, _ = c.Process.Kill(), c.Wait()
	}
	tell("PyTorch killed 5 times")
	for i := range 100 {
		c, _ := python("-c", `
import sys, tegracast_share
client = tegracast_share.Client(sys.argv[1], results=True)
while True:
    with client.next() as frame:
        frame.respond(tags={"by": "light"})`, socket)
		time.Sleep(time.Duration(60+i%40*5) * time.Millisecond)
		_, _ = c.Process.Kill(), c.Wait()
	}
	tell("a light process killed 100 times")
	serve.Stop(t)
	for line := range strings.Lines(serve.Out.String()) {
		t.Log(strings.TrimSpace(line))
	}
}
