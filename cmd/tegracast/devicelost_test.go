// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// lostGPU compiles a libcuda that loses its device when a file appears.
func lostGPU(t *testing.T, compiler string) (folder string) {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), compiler, "-shared", "-fPIC", "-ffreestanding", "-nostdlib", "-O2", "-o", filepath.Join(dir, "libcuda.so.1"), "../../cudahost/testdata/standin.c").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// TestDeviceLost checks that the loss of CUDA's device ends the program with a status of its own, after which the service
// manager restarts it. Here a reload meets the loss; a test of package pipeline covers a running graph.
func TestDeviceLost(t *testing.T) {
	dir := lostGPU(t, "gcc")
	file := filepath.Join(dir, "lost")
	t.Setenv("LD_LIBRARY_PATH", dir)
	t.Setenv("STANDIN_LOST", file)
	text := "memory: cuda\nweb: {listen: none}\n" + strings.Replace(good, "5004", fmt.Sprint(rtptest.EvenPorts(t, 1)[0]), 1)
	cfg := programtest.Write(t, "config.yaml", text)
	p := programtest.StartProgram(t, "serve", "--config", cfg, "--sdp-dir", dir)
	programtest.Await(t, filepath.Join(dir, "raw.sdp"))
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cfg, []byte(strings.Replace(text, "240}", "240, rate: 25}", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if status := p.Wait(t, time.Minute); status != exitDevice || !strings.Contains(p.Err.String(), "cuMemHostAlloc: CUDA_ERROR_STANDIN (700)") {
		t.Errorf("status %d\n%s", status, p.Err.String())
	}
}
