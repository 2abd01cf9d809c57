// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/cudahost/cudatest"
)

// TestAttempt has the program use a libcuda that works, one that fails, one that hangs and one that crashes, and UCX.
func TestAttempt(t *testing.T) {
	folder := t.TempDir()
	build := exec.CommandContext(t.Context(), "gcc", "-shared", "-fPIC", "-o", filepath.Join(folder, cudaLibrary), "../../../cudahost/testdata/standin.c")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v (make setup-test installs gcc)\n%s", err, out)
	}
	cudatest.LibCUfile(t, folder, "../../../cudahost/cufile")
	refused := filepath.Join(folder, "refused")
	if err := os.Mkdir(refused, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		library, variable string
		limit             time.Duration
		about, trouble    string
	}{
		"works":      {"cuda", "STANDIN", time.Minute, "stand-in, compute capability 8.7, CUDA 12.2; memory of cudaHostAlloc with SYNC_MEMOPS", ""},
		"fails":      {"cuda", "STANDIN_NO_INIT", time.Minute, "", "cuInit"},
		"hangs":      {"cuda", "STANDIN_HANGS", time.Second, "", "it has not answered for 1s"},
		"crashes":    {"cuda", "STANDIN_CRASHES", time.Minute, "", "the process that used it has ended: exit status 2: SIG"},
		"encoder":    {"encoder", "STANDIN", time.Minute, "", "is used through NVIDIA's libraries: libnvv4l2.so cannot be opened"},
		"UCX":        {"ucx", "STANDIN", time.Minute, "1.", ""},
		"libcufile":  {filesAttempt + folder, "STANDIN", time.Minute, "", ""},
		"refused":    {filesAttempt + refused, "STANDIN", time.Minute, "", refused + ": cuFile: the file is not registered (5027): libcufile does not support"},
		"no CUDA":    {filesAttempt + folder, "STANDIN_NO_INIT", time.Minute, "", "cuInit"},
		"no library": {"other", "STANDIN", time.Minute, "", `"other": no such library`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("LD_LIBRARY_PATH", folder)
			t.Setenv(tt.variable, "1")
			about, err := attempt(t.Context(), []string{programtest.Program(t)}, tt.library, tt.limit)
			if tt.trouble == "" && (err != nil || !strings.HasPrefix(about, tt.about)) || tt.trouble != "" && (err == nil || !strings.Contains(err.Error(), tt.trouble)) {
				t.Errorf("%q, %v, want %q, %q", about, err, tt.about, tt.trouble)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than a line: %v", err)
			}
		})
	}
	if _, err := attempt(t.Context(), []string{filepath.Join(folder, "none")}, "cuda", time.Minute); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("no program: %v", err)
	}
	if err := Attempt(terminal.Env{Out: io.Discard}, "other"); err == nil {
		t.Error("an unknown library is attempted")
	}
}

// TestDoctorCUDA checks what doctor says of a GPU whose device files can be opened and whose CUDA fails, and of other
// libraries that fail, and that it does not use CUDA before.
func TestDoctorCUDA(t *testing.T) {
	root := orin()
	root["dev/nvmap"], root["dev/nvgpu/igpu0/power"] = &fstest.MapFile{}, &fstest.MapFile{}
	p := ofPatient(root, usesNVP2P)
	var asked []string
	fails := error(nil)
	p.attempt = func(library string) (string, error) {
		asked = append(asked, library)
		return "a stand-in", fails
	}
	if got := p.gpu(); got.Grade != isGood || !strings.HasSuffix(got.Detail, "CUDA works: a stand-in") {
		t.Errorf("%+v", got)
	}
	fails = exec.ErrNotFound
	for file, command := range map[string]string{"usr/bin/none": "journalctl -k", "usr/bin/nvidia-modprobe": "nvidia-modprobe -c 0 -u; "} {
		root[file] = &fstest.MapFile{}
		got := p.gpu()
		if got.Grade != isWarning || !strings.Contains(got.Detail, "CUDA fails: "+fails.Error()) || !strings.HasPrefix(got.Command, command) {
			t.Errorf("%+v, want %s", got, command)
		}
		exists(t, got.Command)
		delete(root, file)
	}
	root["usr/lib/aarch64-linux-gnu/libucp.so.0"] = &fstest.MapFile{}
	if got := p.ucx(); got.Grade != isWarning || !strings.Contains(got.Detail, "cannot be used: "+fails.Error()+": see ") {
		t.Errorf("%+v", got)
	}
	if got := p.encoder(); got.Grade != isNote || got.Detail != "not used: "+fails.Error() {
		t.Errorf("%+v", got)
	}
	delete(root, "dev/nvgpu/igpu0/power")
	delete(root, "usr/lib/aarch64-linux-gnu/libucp.so.0")
	asked = nil
	if p.gpu(); asked != nil {
		t.Errorf("without a GPU %q are used", asked)
	}
}
