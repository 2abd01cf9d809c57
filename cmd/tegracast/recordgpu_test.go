// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/record"
)

// TestServePacks records frames in CUDA's memory, packed by the stand-in for a GPU. By the FPGA's CRC they must be the
// camera's.
func TestServePacks(t *testing.T) {
	standInGPU(t)
	servePacks(t)
}

// TestGPUServePacks does the same on a GPU.
func TestGPUServePacks(t *testing.T) {
	needGPU(t)
	servePacks(t)
}

func servePacks(t *testing.T) {
	t.Helper()
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	dir := t.TempDir()
	serve := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "pack.yaml", fmt.Sprintf(`
memory: cuda
web: {listen: none}
sources: [{name: camera, model: {width: 640, height: 480, rate: 10}}]
outputs: [{name: samples, from: camera, policy: block, queue: 8, record: {directory: %q, pack: true, duration: 500ms}}]
`, dir)))
	awaitFiles(t, dir, "samples", 3)
	serve.Stop(t)
	if log := serve.Err.String(); !strings.Contains(log, "the recording is packed on the GPU") {
		t.Errorf("the GPU does not pack:\n%s", log)
	}
	files, err := record.Files(dir, "samples")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		r, err := record.Inspect(t.Context(), path, true, func(float64) {})
		if err != nil || !r.Good() || !r.Finished || r.Frames == 0 || r.Traced != r.Frames || r.Image.Encoding != "pRAA" {
			t.Errorf("%+v, %v", r, err)
		}
	}
}
