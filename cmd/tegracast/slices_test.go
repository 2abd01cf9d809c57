// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

const slicesYAML = `
memory: %s
web: {listen: none}
sources:
  - name: camera
    model: {width: 640, height: 480, rate: 50, exposure: 2ms, readout: 16ms%s}
isp: [{name: isp, device: %s}]
outputs:
  - {name: raw, latency: slice, rtp: {payload: raw, destinations: ["127.0.0.1:%d"], checksum: true}}
  - {name: whole, rtp: {payload: raw, destinations: ["127.0.0.1:%d"], checksum: true}}
  - {name: jpeg, scale: half, rtp: {payload: jpeg, destinations: ["127.0.0.1:%d"], checksum: true}}
`

// TestStreamInSlices checks a stream whose packets are sent while the frame arrives, beside streams of whole frames.
// Every frame that a receiver takes for complete must be right, even if frames turn out to be damaged after their first
// lines were sent.
func TestStreamInSlices(t *testing.T) {
	programtest.NotShort(t)
	testStreamInSlices(t, "host", "cpu")
}

// TestGPUStreamInSlices does the same through the isp on a GPU.
func TestGPUStreamInSlices(t *testing.T) {
	needGPU(t)
	testStreamInSlices(t, "cuda", "cuda")
}

func testStreamInSlices(t *testing.T, memory, device string) {
	for _, faults := range []string{"", ", faults: {F10: 0.1}"} {
		programtest.Quiet(t, func(t *testing.T) error { return streamInSlices(t, memory, device, faults) })
	}
}

func streamInSlices(t *testing.T, memory, device, faults string) error {
	dir, p := t.TempDir(), rtptest.EvenPorts(t, 3)
	text := fmt.Sprintf(slicesYAML, memory, faults, device, p[0], p[1], p[2])
	serve := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "slices.yaml", text), "--sdp-dir", dir)
	var probes []*programtest.Process
	for _, name := range []string{"raw", "whole", "jpeg"} {
		programtest.Await(t, filepath.Join(dir, name+".sdp"))
		probes = append(probes, programtest.StartProgram(t, "probe", "--sdp", filepath.Join(dir, name+".sdp"), "--duration", "3s", "--json"))
	}
	var lossy error
	for i, probe := range probes {
		status := probe.Wait(t, time.Minute)
		v := probe.Verdict(t)
		t.Logf("%d frames, %d damaged, latency %v", v.Frames, v.Damaged, v.Latency)
		switch {
		case v.Mismatched > 0 || v.Malformed+v.Foreign > 0:
			t.Errorf("stream %d: %+v", i, v)
		case v.Frames < 80 || v.Matched != v.Frames || v.Lost > 0 || faults == "" && (status != 0 || v.Damaged > 0):
			lossy = fmt.Errorf("stream %d: status %d, %+v", i, status, v)
		case i == 0 && faults != "" && v.Damaged == 0:
			t.Error("no frame was damaged")
		}
	}
	serve.Stop(t)
	n, out := books(t, serve.Out.String()), serve.Out.String()
	if len(n) != 3 || strings.Contains(out, "raw/damaged") != (faults != "") {
		t.Errorf("summary:\n%s", out)
	}
	return lossy
}
