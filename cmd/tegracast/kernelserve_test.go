// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/cudahost/cudatest"
	"github.com/tegracast/tegracast/pipeline/kernel"
	"github.com/tegracast/tegracast/pipeline/report"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

const kernelsYAML = `
memory: cuda
web: { listen: "127.0.0.1:%d" }
sources:
  - name: camera
    model: { width: 320, height: 240, rate: 20 }
isp:
  - { name: isp, device: %s }
kernels:
  - name: focus
    file: %s
    parameters: { threshold: 60 }
    time_limit: 1s
  - name: motion
    file: %s
    pixels: grey
    output: results
    parameters: { difference: 8, share: 0.1, speed: 0.05 }
    numbers: [moving, state_needed]
    labels: [motion]
    state: 200000
outputs:
  - name: raw
    from: focus
    rtp: { payload: raw, destinations: ["127.0.0.1:%d"] }
  - name: lines
    from: motion
    results: { tcp: "127.0.0.1:%d" }
`

// exampleFile returns the absolute path of a worked example. The binary of make gpu-test runs in the root of the tree.
func exampleFile(t *testing.T, name string) string {
	t.Helper()
	for _, folder := range []string{"../../docs/kernels", "docs/kernels"} {
		path, err := filepath.Abs(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Fatalf("%s is not there", name)
	return ""
}

// kernelService is a serve process with the two examples, and its own state directory.
type kernelService struct {
	*programtest.Process
	config string
	state  string
	lines  int // TCP port
	web    int // TCP port
}

func newKernelService(t *testing.T, focus string) *kernelService {
	t.Helper()
	p, device := rtptest.EvenPorts(t, 3), "auto"
	if os.Getenv("STANDIN_FOLDER") != "" { // it does not support the isp's kernels
		device = "cpu"
	}
	s := &kernelService{state: t.TempDir(), lines: p[1], web: p[2]}
	s.config = programtest.Write(t, "kernels.yaml", fmt.Sprintf(kernelsYAML, p[2], device, focus, exampleFile(t, "motion.cu"), p[0], p[1]))
	t.Setenv("STATE_DIRECTORY", s.state)
	return s
}

// start runs the program until its outputs are armed.
func (s *kernelService) start(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	s.Process = programtest.StartProgram(t, "serve", "--config", s.config, "--sdp-dir", dir)
	programtest.Await(t, filepath.Join(dir, "raw.sdp"))
}

// reports reads the results of n frames.
func (s *kernelService) reports(t *testing.T, n int) (list []report.Report) {
	t.Helper()
	var conn net.Conn
	var err error
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if conn, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.lines)); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(3 * time.Minute))
	for r := bufio.NewReader(conn); len(list) < n; {
		line, err := r.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		var found report.Report
		if err := json.Unmarshal(line, &found); err != nil {
			t.Fatal(err)
		}
		list = append(list, found)
	}
	return list
}

// streams checks motion's results, the statistics of both outputs, and a regular end.
func (s *kernelService) streams(t *testing.T) {
	t.Helper()
	found := 0
	for _, r := range s.reports(t, 20) {
		if len(r.Results) != 1 || r.Results[0].Stage != "motion" || r.Results[0].Numbers["state_needed"] != 0 {
			t.Fatalf("%+v", r)
		}
		found += len(r.Results[0].Regions)
	}
	if found == 0 {
		t.Error("the test chart moves, and no motion was found")
	}
	s.Stop(t)
	if n := books(t, s.Out.String()); len(n) != 2 {
		t.Errorf("summary:\n%s", s.Out.String())
	}
}

// quarantined checks the metrics of both kernels.
func (s *kernelService) quarantined(t *testing.T, focus, motion int) {
	t.Helper()
	_, metrics := fetch(t, fmt.Sprintf("http://127.0.0.1:%d/metrics", s.web))
	for name, want := range map[string]int{"focus": focus, "motion": motion} {
		if line := fmt.Sprintf("\ntegracast_kernel_quarantined{stage=%q} %d\n", name, want); !strings.Contains(metrics, line) {
			t.Errorf("the metrics do not say%s", line)
		}
	}
}

// TestKernels runs the examples in the whole program, with a stand-in for CUDA that runs them on the CPU. Then it marks
// one of them as if it had broken the GPU before.
func TestKernels(t *testing.T) {
	if testing.Short() {
		t.Skip("NEEDS 20 s, which -short does not give")
	}
	env := cudatest.StandIn(t, t.TempDir(), "../../pipeline/isp/cuda/testdata/device.cpp", "../../pipeline/kernel/testdata")
	for _, pair := range append(env, "STANDIN_AT_ONCE=1") {
		name, value, _ := strings.Cut(pair, "=")
		t.Setenv(name, value)
	}
	s := newKernelService(t, exampleFile(t, "focus.cu"))
	s.start(t)
	s.quarantined(t, 0, 0)
	s.streams(t)

	motion, err := os.ReadFile(exampleFile(t, "motion.cu"))
	if err != nil {
		t.Fatal(err)
	}
	q := kernel.NewQuarantine(filepath.Join(s.state, "quarantine"))
	if err := q.Put(kernel.Entry{Key: kernel.Key(motion, "motion"), What: "it had a bad day"}); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	s.quarantined(t, 0, 1)
	for _, r := range s.reports(t, 3) {
		if len(r.Results) != 0 {
			t.Errorf("a kernel in quarantine found %+v", r)
		}
	}
	s.Stop(t)
	if log := s.Err.String(); !strings.Contains(log, "kernel is in quarantine and skipped") || !strings.Contains(log, "it had a bad day") || !strings.Contains(log, q.Path(kernel.Key(motion, "motion"))) {
		t.Errorf("the log does not say how to release it:\n%s", log)
	}
}
