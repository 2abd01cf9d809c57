// SPDX-License-Identifier: Apache-2.0

// Package distribution names the packages of Linux distributions that contain the libraries which the program opens at
// run time.
package distribution

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// A release is a release of a distribution.
type release struct {
	id, version string // ID and VERSION_ID of os-release(5)
	name        string
}

// releases are Debian's, and Ubuntu's of JetPack 5, 6 and 7.
var releases = [...]release{
	{"debian", "11", "Debian 11"},
	{"debian", "12", "Debian 12"},
	{"debian", "13", "Debian 13"},
	{"ubuntu", "20.04", "Ubuntu 20.04 (JetPack 5)"},
	{"ubuntu", "22.04", "Ubuntu 22.04 (JetPack 6)"},
	{"ubuntu", "24.04", "Ubuntu 24.04 (JetPack 7)"},
}

// A Library is a library that the program opens at run time.
type Library struct {
	Name     string
	packages [len(releases)]string // empty: there is none, or it is too old
	without  string                // what to do where there is none
}

// The libraries.
var (
	OpenH264 = Library{
		"openh264",
		[...]string{"", "libopenh264-7", "libopenh264-8", "", "libopenh264-6", "libopenh264-7"},
		"use the board's encoder (encoder of the output), or payload raw or jpeg",
	}
	TurboJPEG = Library{
		"libjpeg-turbo",
		[...]string{"libturbojpeg0", "libturbojpeg0", "libturbojpeg0", "libturbojpeg", "libturbojpeg", "libturbojpeg"},
		"",
	}
	UCX = Library{
		"UCX",
		[...]string{"", "libucx0", "libucx0", "", "libucx0", "libucx0"},
		"install NVIDIA's (package ucx of DOCA)",
	}
	ONNXRuntime = Library{
		"ONNX Runtime",
		[...]string{"", "", "libonnxruntime1.21", "", "", ""},
		"copy lib/libonnxruntime*.so* of its release for this processor (https://github.com/microsoft/onnxruntime/releases), " +
			"or of a build with CUDA and TensorRT for this JetPack, to /usr/local/lib",
	}
)

// Table returns the packages of all libraries on all releases, for the help.
func Table() string {
	var b strings.Builder
	line := func(words ...any) { fmt.Fprintf(&b, "  %-26s%-15s%-15s%s\n", words...) }
	line("", OpenH264.Name, TurboJPEG.Name, UCX.Name)
	for i, r := range releases {
		line(r.name, cmp.Or(OpenH264.packages[i], "none"), cmp.Or(TurboJPEG.packages[i], "none"), cmp.Or(UCX.packages[i], "none"))
	}
	return b.String()
}

// Command returns the command for root that installs the library on the machine whose files are in root, or "" if none
// is known.
func (l Library) Command(root fs.FS) string {
	if i := here(root); i >= 0 && l.packages[i] != "" {
		return "apt-get install " + l.packages[i]
	}
	return ""
}

// Advice returns what to do to get the library on the machine whose files are in root.
func (l Library) Advice(root fs.FS) string {
	i := here(root)
	switch {
	case i < 0:
		return "install " + l.Name + " by this distribution's package manager"
	case l.packages[i] == "":
		return fmt.Sprintf("%s has no package of %s that is new enough: %s", releases[i].name, l.Name, l.without)
	}
	return "install " + l.Name + " (" + l.Command(root) + ")"
}

// here returns the index in releases of the machine whose files are in root, or -1.
func here(root fs.FS) int {
	text, err := fs.ReadFile(root, "etc/os-release")
	if err != nil {
		return -1
	}
	values := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[key] = strings.Trim(value, `"'`)
	}
	return slices.IndexFunc(releases[:], func(r release) bool { return r.id == values["ID"] && r.version == values["VERSION_ID"] })
}
