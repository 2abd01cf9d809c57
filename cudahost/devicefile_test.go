// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"bytes"
	"io/fs"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
)

// guarded is a file system with some files that cannot be opened.
type guarded struct {
	fstest.MapFS
	errs map[string]error
}

func (g guarded) Open(name string) (fs.File, error) {
	if err := g.errs[name]; err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return g.MapFS.Open(name)
}

func machine(errs map[string]error, files ...string) guarded {
	g := guarded{fstest.MapFS{}, errs}
	for _, f := range files {
		g.MapFS[f] = &fstest.MapFile{}
	}
	return g
}

// TestGPUThatIsNotUsed checks that on a machine with a GPU, "auto" only falls back to host memory with a warning that
// says which device file cannot be opened, why, and what to do. Without a GPU there is no warning.
func TestGPUThatIsNotUsed(t *testing.T) {
	orin := []string{"dev/nvgpu/igpu0/power", "dev/nvgpu/igpu0/ctrl", "dev/nvgpu/igpu0/dbg", "dev/nvmap", "dev/host1x-fence", "dev/dri/renderD128"}
	xavier := []string{"dev/nvhost-ctrl", "dev/nvhost-ctrl-gpu", "dev/nvhost-gpu", "dev/nvmap"}
	for _, tt := range []struct {
		name  string
		root  fs.FS
		level string
		says  []string
		not   string
	}{
		{
			"device rules", machine(map[string]error{"dev/nvgpu/igpu0/ctrl": syscall.EPERM, "dev/host1x-fence": syscall.EPERM}, orin...), "WARN",
			[]string{"/dev/nvgpu/igpu0/ctrl: operation not permitted; /dev/host1x-fence: operation not permitted", "systemctl restart tegracast"},
			"power",
		},
		{
			"group", machine(map[string]error{"dev/dri/renderD128": syscall.EACCES}, orin...),
			"WARN",
			[]string{"/dev/dri/renderD128: permission denied", "usermod -aG video,render"},
			"nvmap",
		},
		{"older names", machine(map[string]error{"dev/nvhost-gpu": syscall.EACCES}, xavier...), "WARN", []string{"/dev/nvhost-gpu: permission denied"}, "nvhost-ctrl"},
		{
			"driver", machine(map[string]error{"dev/nvidia0": syscall.EIO}, "dev/nvidia0", "dev/nvidiactl"),
			"WARN",
			[]string{"/dev/nvidia0: input/output error", "journalctl -k"},
			"nvidiactl",
		},
		{"profiler's files alone", machine(map[string]error{"dev/nvgpu/igpu0/dbg": syscall.EACCES}, orin...), "WARN", []string{"all can be opened", "tegracast doctor"}, "dbg"},
		{"another GPU", machine(map[string]error{"dev/dri/renderD128": syscall.EACCES}, "dev/dri/renderD128"), "INFO", nil, "renderD128"},
		{"no GPU", machine(nil), "INFO", nil, "remedy"},
	} {
		var log bytes.Buffer
		a, err := Open(Config{library: "libnothing.so", root: tt.root, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil || a.Backend() != "host" {
			t.Fatalf("%s: %v", tt.name, err)
		}
		said := log.String()
		for _, s := range append(tt.says, "level="+tt.level, "memory back end is host", "libnothing.so") {
			if !strings.Contains(said, s) {
				t.Errorf("%s: %q is missing in: %s", tt.name, s, said)
			}
		}
		if strings.Contains(said, tt.not) {
			t.Errorf("%s: it speaks of %s: %s", tt.name, tt.not, said)
		}
	}
}
