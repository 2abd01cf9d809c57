// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
)

// accepted checks that `config check` accepts a configuration if want is empty, and that otherwise it and serve refuse
// it.
func accepted(t *testing.T, path, want string) {
	t.Helper()
	if want != "" {
		refused(t, path, want)
	} else if status, _, errw := runs(t, "config", "check", path); status != exitOK {
		t.Error(errw)
	}
}

// TestConfigCheckLooksAtTheFilesOfSources checks that config check finds the mistakes in a source's file that serve would
// find.
func TestConfigCheckLooksAtTheFilesOfSources(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, size int, head string) string {
		return programtest.Write(t, name, head+strings.Repeat("\x00", size-len(head)))
	}
	const frame, head = 2 * 320 * 240, "YUV4MPEG2 W320 H240 F30:1 C420jpeg\nFRAME\n"
	fine, short, empty, long := file("fine.raw", 2*frame, ""), file("short.raw", frame-1, ""), file("empty.raw", 0, ""), file("long.raw", 0, "")
	if err := os.Truncate(long, (1<<30/frame+1)*frame); err != nil {
		t.Fatal(err)
	}
	for _, w := range [][3]string{ // the key, the file, and the message
		{"model: {replay", fine, ""},
		{"model: {replay", dir + "/none", "c.yaml:1:42: sources[0].model.replay: stat " + dir + "/none: no such file or directory: correct the path"},
		{"model: {replay", dir, dir + " is a directory"},
		{"model: {replay", short, short + " has 153599 bytes: must be a multiple of 153600"},
		{"model: {replay", empty, empty + " has 0 bytes"},
		{"model: {replay", long, "replay it by a source with file"},
		{"file: {path", fine, ""},
		{"file: {path", long, ""},
		{"file: {path", dir + "/none", "c.yaml:1:39: sources[0].file.path: replay: stat " + dir + "/none: no such file"},
		{"file: {path", dir, dir + " is a directory"},
		{"file: {path", short, "has 153599 bytes, 1 less than a frame"},
		{"file: {path", empty, empty + ": is empty"},
	} {
		accepted(t, goodYAML(t, "model: {", fmt.Sprintf("%s: %s, ", w[0], w[1])), w[2])
	}
	y4m, cut := file("fine.y4m", len(head)+320*240*3/2, head), file("cut.y4m", len(head)+1000, head)
	for path, want := range map[string]string{y4m: "", cut: "it was cut off", dir + "/none.y4m": "no such file", fine: "a headerless file needs its width"} {
		accepted(t, programtest.Write(t, "c.yaml", "sources: [{name: camera, file: {path: "+path+"}}]\n"+
			`outputs: [{name: out, rtp: {payload: h264, destinations: ["127.0.0.1:5004"]}}]`), want)
	}
	fast := file("fast.y4m", len(head)+4+320*240*3/2, strings.Replace(head, "F30:1", "F100000:1", 1))
	for rate, want := range map[string]string{"": "give a rate of at most", ", rate: 30": ""} {
		accepted(t, programtest.Write(t, "c.yaml", "sources: [{name: camera, file: {path: "+fast+rate+"}}]\n"+
			`outputs: [{name: out, rtp: {payload: h264, destinations: ["127.0.0.1:5004"]}}]`), want)
	}
	for payload, want := range map[string]string{
		"jpeg": "outputs[0].rtp.payload: YU12 320x240 as jpeg: colours are bt709-limited, and those of JPEG are bt601-full (JFIF)",
		"raw":  `outputs[0].rtp.payload: source "camera" has YU12, but the output sends UYVY`,
	} {
		accepted(t, programtest.Write(t, "c.yaml", "sources: [{name: camera, file: {path: "+y4m+"}}]\n"+
			`outputs: [{name: out, rtp: {payload: `+payload+`, destinations: ["127.0.0.1:5004"]}}]`), want)
	}
}

// TestAByteOrderMarkIsNoKey checks that a byte order mark, which some editors write, is accepted and does not change the
// places of mistakes.
func TestAByteOrderMarkIsNoKey(t *testing.T) {
	accepted(t, programtest.Write(t, "c.yaml", "\ufeff"+good), "")
	refused(t, programtest.Write(t, "c.yaml", "\ufeff"+strings.Replace(good, "sources", "source", 1)), `c.yaml:1:1: unknown key "source"`)
}

// TestDefectsOutsideThePictureAreRefused covers the defects of the section and those of its file.
func TestDefectsOutsideThePictureAreRefused(t *testing.T) {
	file := programtest.Write(t, "defects.txt", "319 239\n0 240\n")
	refused(t, goodYAML(t, "{name: isp}", "{name: isp, defects: {file: "+file+"}}"),
		"isp[0].defects.file: "+file+": [0, 240]: x must be from 0 to 319 and y from 0 to 239, in a picture of 320x240")
	refused(t, goodYAML(t, "{name: isp}", "{name: isp, defects: {pixels: [[319, 239], [320, 0]]}}"),
		"c.yaml:2:50: isp[0].defects.pixels[1]: [320, 0]: x must be from 0 to 319")
	accepted(t, goodYAML(t, "{name: isp}", "{name: isp, defects: {pixels: [[319, 239], [0, 0]]}}"), "")
}
