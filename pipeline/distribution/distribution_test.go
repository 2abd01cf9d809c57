// SPDX-License-Identifier: Apache-2.0

package distribution

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// libraries are all libraries of the table.
var libraries = []Library{OpenH264, TurboJPEG, UCX, ONNXRuntime}

// machine returns the files of a machine with a release.
func machine(r release) fstest.MapFS {
	return fstest.MapFS{"etc/os-release": &fstest.MapFile{Data: []byte("NAME=x\nID=" + r.id + "\nVERSION_ID=\"" + r.version + "\"\n")}}
}

// TestAdvice checks the remedy on each release: a package of it, or what to do without one.
func TestAdvice(t *testing.T) {
	for _, tt := range []struct {
		library         Library
		id, version     string
		command, advice string
	}{
		{OpenH264, "debian", "13", "apt-get install libopenh264-8", "install openh264 (apt-get install libopenh264-8)"},
		{OpenH264, "ubuntu", "22.04", "apt-get install libopenh264-6", "(apt-get install libopenh264-6)"},
		{OpenH264, "ubuntu", "20.04", "", "Ubuntu 20.04 (JetPack 5) has no package of openh264 that is new enough: use the board's encoder"},
		{TurboJPEG, "ubuntu", "24.04", "apt-get install libturbojpeg", "(apt-get install libturbojpeg)"},
		{TurboJPEG, "debian", "12", "apt-get install libturbojpeg0", "libturbojpeg0"},
		{UCX, "ubuntu", "22.04", "apt-get install libucx0", "libucx0"},
		{UCX, "debian", "11", "", "Debian 11 has no package of UCX that is new enough: install NVIDIA's (package ucx of DOCA)"},
		{ONNXRuntime, "debian", "13", "apt-get install libonnxruntime1.21", "libonnxruntime1.21"},
		{ONNXRuntime, "ubuntu", "22.04", "", "new enough: copy lib/libonnxruntime*.so* of its release"},
		{UCX, "fedora", "42", "", "install UCX by this distribution's package manager"},
		{UCX, "debian", "", "", "install UCX by this distribution's package manager"},
	} {
		root := machine(release{id: tt.id, version: tt.version})
		if got := tt.library.Command(root); got != tt.command {
			t.Errorf("%s of %s %s: %q, want %q", tt.library.Name, tt.id, tt.version, got, tt.command)
		}
		if got := tt.library.Advice(root); !strings.Contains(got, tt.advice) {
			t.Errorf("%s of %s %s: %q, want %q", tt.library.Name, tt.id, tt.version, got, tt.advice)
		}
	}
	for _, l := range libraries {
		if got := l.Advice(fstest.MapFS{}); l.Command(fstest.MapFS{}) != "" || !strings.Contains(got, l.Name) {
			t.Errorf("without os-release: %q", got)
		}
		if i := slices.Index(l.packages[:], ""); i >= 0 && l.without == "" {
			t.Errorf("%s: no remedy on %s", l.Name, releases[i].name)
		}
	}
}

// TestTable checks a line of the table that the help shows.
func TestTable(t *testing.T) {
	const want = "\n  Ubuntu 20.04 (JetPack 5)  none           libturbojpeg   none\n"
	if got := Table(); !strings.Contains(got, want) || strings.Count(got, "\n") != len(releases)+1 {
		t.Errorf("%s lacks %q", got, want)
	}
}

// TestRecommends checks that the package recommends each library, by the names of all releases. It suggests ONNX Runtime,
// which few need.
func TestRecommends(t *testing.T) {
	text, err := os.ReadFile("../../systemd/deb/tegracast.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range libraries {
		field := "recommends"
		if l == ONNXRuntime {
			field = "suggests"
		}
		_, line, _ := strings.Cut(string(text), "\n"+field+": ")
		line, _, _ = strings.Cut(line, "\n")
		names := slices.DeleteFunc(slices.Sorted(slices.Values(l.packages[:])), func(s string) bool { return s == "" })
		slices.Reverse(names)
		if want := strings.Join(slices.Compact(names), " | "); !strings.Contains(line, `"`+want) {
			t.Errorf("systemd/deb/tegracast.yaml: %s lacks %q: %s", field, want, line)
		}
	}
}
