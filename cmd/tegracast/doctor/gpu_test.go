// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
)

// shutFiles are files that cannot be opened, with the error.
type shutFiles struct {
	fstest.MapFS
	why map[string]error
}

func (s shutFiles) Open(name string) (fs.File, error) {
	if err := s.why[name]; err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return s.MapFS.Open(name)
}

// TestDoctorGPU checks that a GPU whose device files cannot be opened gives a warning, which names the file and has a
// command.
func TestDoctorGPU(t *testing.T) {
	const power, nvmap, render = "dev/nvgpu/igpu0/power", "dev/nvmap", "dev/dri/renderD128"
	root := orin()
	if got := ofPatient(root, usesNVP2P).gpu(); got.Grade != isNote || got.Command != "" {
		t.Errorf("without a GPU: %+v", got)
	}
	for _, name := range []string{power, nvmap, render} {
		root[name] = &fstest.MapFile{}
	}
	for _, tt := range []struct {
		why     map[string]error
		grade   grade
		says    string
		command string
	}{
		{nil, isGood, "/" + power + " /" + nvmap + " /" + render, ""},
		{map[string]error{nvmap: syscall.EACCES, render: syscall.EACCES}, isWarning, "/dev/nvmap: permission denied; /dev/dri/renderD128: permission denied", "usermod -aG video,render "},
		{map[string]error{power: syscall.EPERM}, isWarning, "/dev/nvgpu/igpu0/power: operation not permitted", "systemctl restart tegracast"},
		{map[string]error{power: syscall.ENODEV}, isWarning, "no such device", "journalctl -k"},
	} {
		found := false
		for _, x := range ofPatient(shutFiles{root, tt.why}, usesNVP2P).examine() {
			if x.What != "GPU" {
				continue
			}
			found = true
			if x.Grade != tt.grade || !strings.Contains(x.Detail, tt.says) || !strings.HasPrefix(x.Command, tt.command) || (tt.command == "") != (x.Command == "") {
				t.Errorf("%+v, want %s: %s, and %q", x, tt.grade, tt.says, tt.command)
			}
			if x.Command != "" {
				exists(t, x.Command)
			}
		}
		if !found {
			t.Errorf("doctor does not speak of the GPU with %v", tt.why)
		}
	}
}
