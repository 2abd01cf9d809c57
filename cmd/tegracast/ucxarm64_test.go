// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tegracast/tegracast/board/vjetson"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
)

// ucxFiles returns Debian's UCX for the machine.
func ucxFiles(t *testing.T) map[string]string {
	t.Helper()
	u, err := vjetson.FetchPackages(t.Context(), "arm64", "bookworm", slog.Default(), "libucx0")
	if err != nil {
		t.Fatal(err)
	}
	const libraries = "/usr/lib/aarch64-linux-gnu"
	files := map[string]string{}
	for _, pattern := range []string{"libuc[mpst]*.so.0", "libnuma.so.1"} {
		found, _ := filepath.Glob(filepath.Join(u.Dir, libraries, pattern)) // the pattern is well-formed
		for _, link := range found {
			file, err := filepath.EvalSymlinks(link)
			if err != nil {
				t.Fatal(err)
			}
			files[filepath.Join(libraries, filepath.Base(link))] = file
		}
	}
	if len(files) < 5 {
		t.Fatalf("UCX has only the libraries %v", files)
	}
	return files
}

// buildARM64 compiles the program for the virtual Jetson, and returns its path.
func buildARM64(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "tegracast")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "github.com/tegracast/tegracast/cmd/tegracast")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=arm64")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// receiveFrom receives a stream of the machine on this host by UCX. Every frame must have the FPGA's CRC. Otherwise it
// shows the output of log, which prints the sender's last lines.
func receiveFrom(t *testing.T, m *vjetson.Machine, program, stream, duration, log string) {
	t.Helper()
	// UCX looks for network devices in /sys, which must belong to the network namespace.
	const receive = `mount -t sysfs sysfs /sys && exec "$0" receive --json --duration "$1" --ucx "$2" --stream "$3"`
	c, err := m.HostCommand(t.Context(), "unshare", "--mount", "env", "UCX_TLS=tcp", "sh", "-c", receive, program, duration, vjetson.GuestAddress+":5020", stream)
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	c.Stderr = &errs
	out, _ := c.Output() // fails after a lost frame, which can happen on a busy host
	var r received
	if err := json.Unmarshal(out, &r); err != nil || r.Frames == 0 || r.Traced != r.Frames || r.Mismatched > 0 {
		said, _ := m.Shell(t.Context(), log)
		t.Errorf("%v: %+v\n%s\n%s", err, r, &errs, said)
	}
	t.Logf("UCX %s on arm64, %s here: %d frames with the FPGA's CRC, lost %d", r.SenderUCX, r.Release, r.Frames, r.Lost)
}

// TestReceiveFromARM64 sends the FPGA's frames from the program in the virtual Jetson with Debian's UCX for arm64, and
// receives them on this host.
func TestReceiveFromARM64(t *testing.T) {
	if !longRun {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
	kernel, err := vjetson.Fetch(t.Context(), "arm64", slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	inside, files := buildARM64(t), ucxFiles(t)
	files["/bin/tegracast"], files["/etc/tegracast.yaml"] = inside, programtest.Write(t, "config", fmt.Sprintf(ucxYAML, "0.0.0.0:5020"))
	m := vjetson.StartTest(t, vjetson.Config{Kernel: kernel, Network: true, Files: files})
	if out, err := m.Shell(t.Context(), "mkdir -p /run /dev/shm; (UCX_TLS=tcp tegracast serve --config /etc/tegracast.yaml --sdp-dir /run >/run/log 2>&1 &); "+
		"for i in $(seq 250); do grep -q 'ucx: listening' /run/log && exit 0; usleep 200000; done; cat /run/log; exit 1"); err != nil {
		t.Fatal(err, out)
	}
	receiveFrom(t, m, programtest.Program(t), "samples", "20s", "tail -n 20 /run/log")
}
