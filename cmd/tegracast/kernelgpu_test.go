// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/cudahost/cudatest"
	"github.com/tegracast/tegracast/pipeline/kernel"
)

// faulty lists kernels that break the GPU after their tenth frame, and the messages. The one that hangs ends by itself
// after 20 s, so that the machine does not lose the GPU.
var faulty = map[string][2]string{
	"illegal address": {`
	if (pixel_x(in) == 0 && pixel_y() == 0 && in.sequence > 10)
		*(volatile int *)8 = 1;
`, "CUDA_ERROR_ILLEGAL_ADDRESS"},
	"misaligned address": {`
	if (pixel_x(in) == 0 && pixel_y() == 0 && in.sequence > 10)
		*(volatile int *)(out.pixels + 1) = 1;
`, "CUDA_ERROR_MISALIGNED_ADDRESS"},
	"hang": {`
	if (in.sequence > 10) {
		unsigned long long begin, now;
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
		do
			asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
		while (now - begin < 20000000000ull);
	}
`, "the kernel hangs: it is not done after 1s"},
}

// needGPU skips the test without a GPU. CI has none. `make gpu-test` builds the binary that runs these tests on a machine
// with one.
func needGPU(t *testing.T) {
	t.Helper()
	if os.Getenv("TEGRACAST_GPU") == "" {
		t.Skip("NEEDS A GPU with NVIDIA's driver: make gpu-test")
	}
}

// standInGPU makes programs that the test starts use the stand-in for a GPU.
func standInGPU(t *testing.T) {
	t.Helper()
	const isp = "../../pipeline/isp/cuda/testdata"
	for _, pair := range cudatest.StandIn(t, t.TempDir(), isp+"/device.cpp", isp) {
		name, value, _ := strings.Cut(pair, "=")
		t.Setenv(name, value)
	}
}

// TestGPUKernels runs the examples in the whole program.
func TestGPUKernels(t *testing.T) {
	needGPU(t)
	s := newKernelService(t, exampleFile(t, "focus.cu"))
	s.start(t)
	s.streams(t)
}

// TestGPUFaults checks that a kernel that breaks the GPU soon ends the program with the status of a lost device, that the
// next start omits the kernel and streams, and that a corrected kernel works again without a restart.
func TestGPUFaults(t *testing.T) {
	needGPU(t)
	for name, c := range faulty {
		t.Run(name, func(t *testing.T) {
			text := "extern \"C\" __global__ void bad(const Input in, Output out, const parameters, void *)\n{" + c[0] + "}\n"
			file := programtest.Write(t, "bad.cu", text)
			s := newKernelService(t, file)
			begin := time.Now()
			s.Process = programtest.StartProgram(t, "serve", "--config", s.config, "--sdp-dir", t.TempDir())
			status := s.Wait(t, time.Minute)
			t.Logf("ended after %.1f s\n%s", time.Since(begin).Seconds(), s.Err.String())
			if status != exitDevice || !strings.Contains(s.Err.String(), c[1]) || !strings.Contains(s.Err.String(), "kernel focus ("+file) {
				t.Errorf("status %d, want %d and %q", status, exitDevice, c[1])
			}
			path := filepath.Join(s.state, "quarantine", kernel.Key([]byte(text), "bad")+".json")
			var e kernel.Entry
			if b, err := os.ReadFile(path); err != nil || json.Unmarshal(b, &e) != nil || e.Kernel != "focus" || e.Frame < 11 || e.Frame > 60 || !strings.Contains(e.What, c[1]) {
				t.Errorf("%+v, %v", e, err)
			}

			begin = time.Now()
			s.start(t)
			t.Logf("started again in %.1f s", time.Since(begin).Seconds())
			s.reports(t, 10)
			good, err := os.ReadFile(exampleFile(t, "focus.cu"))
			if err != nil {
				t.Fatal(err)
			}
			fixed := strings.Replace(string(good), "void focus(", "void bad(", 1)
			if err := os.WriteFile(file, []byte(fixed), 0o600); err != nil {
				t.Fatal(err)
			}
			s.reports(t, 100) // five seconds
			s.streams(t)
			if log := s.Err.String(); strings.Count(log, "in quarantine and skipped") != 1 || strings.Count(log, "kernel was changed and works") != 1 {
				t.Errorf("the log:\n%s", log)
			}
		})
	}
}
