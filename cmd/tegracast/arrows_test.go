// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// may lists the packages that a package may import (docs/architecture.md, "Import rules"). A key stands for a package and
// for the packages below it without a key of their own, which may import one another.
var may = map[string][]string{
	"board":               {},
	"board/phc":           {"cudahost/headertest", "board/vjetson"}, // its tests compile a header, and boot a virtual Jetson
	"tegra":               {},
	"fpga":                {},
	"fpga/rtl":            {"fpga"},
	"fpga/rtl/rtltest":    {"fpga"},
	"cudahost":            {"cudahost/headertest"},
	"cudahost/headertest": {},
	"pipeline":            {},
	"pipeline/isp":        {"pipeline", "cudahost"},
	"pipeline/kernel":     {"pipeline", "cudahost"},
	"pipeline/convert":    {"pipeline", "pipeline/codec", "pipeline/rtp/rtptest"},
	"pipeline/infer":      {"pipeline", "cudahost", "pipeline/share", "pipeline/infer/...", "pipeline/isp"},                                    // colours, in tests
	"pipeline/rtp":        {"pipeline", "pipeline/rtp/rtptest", "pipeline/codec"},                                                              // its tests encode
	"pipeline/codec":      {"pipeline", "cudahost", "cudahost/headertest", "pipeline/rtp/rtptest", "board/vjetson"},                            // its tests fetch libraries
	"pipeline/codec/v4l2": {"pipeline", "pipeline/codec", "pipeline/videodev", "cudahost/headertest", "pipeline/rtp/rtptest", "board/vjetson"}, // its tests boot a virtual Jetson
	"pipeline/videodev":   {"cudahost/headertest"},
	"capture":             {"cudahost", "tegra", "fpga", "board", "pipeline", "pipeline/record", "pipeline/videodev"},
	"cmd/tegracast":       {"cudahost", "tegra", "fpga", "board/...", "pipeline/...", "capture", "cmd/tegracast/..."},
	"board/vjetson":       {"cudahost", "tegra", "fpga", "board", "pipeline/...", "capture"},
	"pipeline/results":    {"pipeline"},
	"pipeline/ucx":        {"pipeline", "cudahost/headertest", "board/vjetson"}, // its tests fetch headers
	"pipeline/share":      {"pipeline", "cudahost"},                             // its tests share such memory
	"pipeline/rtp/rtsp":   {"pipeline", "pipeline/codec", "pipeline/rtp", "pipeline/rtp/send", "pipeline/rtp/rtptest"},
	"pipeline/rtp/webrtc": {"pipeline", "pipeline/rtp", "pipeline/rtp/send", "pipeline/rtp/rtptest", "pipeline/codec"}, // its tests encode
	"pipeline/record":     {"pipeline", "cudahost", "pipeline/record/mp4"},
	"pipeline/record/mp4": {},
	"pipeline/bus":        {"pipeline"},

	"pipeline/infer/onnx":        {"pipeline", "pipeline/infer", "pipeline/infer/infertest"},
	"pipeline/infer/onnxruntime": {"pipeline", "pipeline/infer", "pipeline/infer/onnx", "pipeline/infer/infertest", "cudahost/headertest"},
	"pipeline/infer/infertest":   {"pipeline/infer", "board/vjetson"},

	"cmd/tegracast/config":          {"tegra", "fpga", "board", "capture", "pipeline/...", "cmd/tegracast/config/yamlfile", "cmd/tegracast/programtest"},
	"cmd/tegracast/config/yamlfile": {},
	"cmd/tegracast/lines":           {"board", "capture", "pipeline", "cmd/tegracast/config", "cmd/tegracast/programtest"},
	"cmd/tegracast/terminal":        {"pipeline", "pipeline/rtp/send"},
	"cmd/tegracast/telemetry":       {"board", "pipeline/...", "cmd/tegracast/config"},
	"cmd/tegracast/streams":         {"pipeline/...", "cudahost", "cmd/tegracast/config"},
	"cmd/tegracast/preview":         {"pipeline", "pipeline/rtp"},
	"cmd/tegracast/web": {
		"pipeline/...", "cmd/tegracast/config/...", "cmd/tegracast/preview", "cmd/tegracast/terminal", "cmd/tegracast/token",
	},
	"cmd/tegracast/device":      {"cudahost", "tegra", "fpga", "capture"},
	"cmd/tegracast/loopback":    {"cudahost", "tegra", "fpga", "capture", "pipeline", "cmd/tegracast/terminal", "cmd/tegracast/device"},
	"cmd/tegracast/verdict":     {"pipeline/...", "cmd/tegracast/terminal"},
	"cmd/tegracast/programtest": {"pipeline/...", "cmd/tegracast/folders", "cmd/tegracast/token"},
	"cmd/tegracast/folders":     {},
	"cmd/tegracast/token":       {"pipeline"},
	"cmd/tegracast/memlock":     {"cudahost", "tegra", "pipeline/...", "cmd/tegracast/config/..."},
	"cmd/tegracast/chaos":       {"fpga", "pipeline/...", "cmd/tegracast/programtest", "cmd/tegracast/web"},
	"cmd/tegracast/appliance": {
		"cudahost", "tegra", "fpga", "board", "board/phc", "pipeline/...", "capture",
		"cmd/tegracast/config/...", "cmd/tegracast/device", "cmd/tegracast/folders", "cmd/tegracast/lines", "cmd/tegracast/memlock",
		"cmd/tegracast/preview", "cmd/tegracast/programtest", "cmd/tegracast/streams", "cmd/tegracast/telemetry", "cmd/tegracast/terminal",
		"cmd/tegracast/web",
	},
	"cmd/tegracast/doctor": {
		"cudahost", "tegra", "fpga", "board", "board/phc", "pipeline/...", "capture", "cmd/tegracast/config", "cmd/tegracast/appliance", "cmd/tegracast/device",
		"cmd/tegracast/loopback", "cmd/tegracast/memlock", "cmd/tegracast/programtest", "cmd/tegracast/terminal", "cmd/tegracast/verdict",
	},

	"pipeline/rtp/send":       {"pipeline", "pipeline/rtp", "pipeline/rtp/rtptest", "pipeline/codec"},
	"pipeline/rtp/receive":    {"pipeline", "pipeline/rtp", "pipeline/rtp/rtptest", "pipeline/codec"},
	"pipeline/rtp/rtptest":    {"pipeline", "pipeline/rtp", "pipeline/rtp/send", "pipeline/rtp/receive"},             // its own tests join both ends
	"pipeline/rtp/benchpeers": {"pipeline", "pipeline/rtp", "pipeline/rtp/send", "pipeline/rtp/receive", "cudahost"}, // the egress as in the appliance
}

// module is the prefix of all our packages.
const module = "github.com/tegracast/tegracast/"

// keyOf returns the key of may that stands for the package at path: the longest that matches, or none.
func keyOf(path string) string {
	best := ""
	for r := range may {
		if (path == r || strings.HasPrefix(path, r+"/")) && len(r) > len(best) {
			best = r
		}
	}
	return best
}

// allowed reports whether a package with the key home may import path. "x/..." stands for x and every key below it.
func allowed(home, path string) bool {
	to := keyOf(path)
	if to == home {
		return true
	}
	for _, r := range may[home] {
		if prefix, all := strings.CutSuffix(r, "/..."); to == r || all && (to == prefix || strings.HasPrefix(to, prefix+"/")) {
			return true
		}
	}
	return false
}

func TestImportArrows(t *testing.T) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", module+"...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := 0
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; packages++ {
		var p struct{ ImportPath, Imports, TestImports, XTestImports any }
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		from := strings.TrimPrefix(p.ImportPath.(string), module)
		home := keyOf(from)
		if home == "" {
			t.Errorf("%s has no import rules: add it to docs/architecture.md and to this test", from)
		}
		for i, list := range []any{p.Imports, p.TestImports, p.XTestImports} {
			names, _ := list.([]any)
			for _, n := range names {
				to, ours := strings.CutPrefix(n.(string), module)
				// Tests of any package may boot the virtual Jetson, and simulate the FPGA's design.
				inTest := i > 0 && (keyOf(to) == "board/vjetson" || keyOf(to) == "fpga/rtl/rtltest")
				if ours && !allowed(home, to) && !inTest {
					t.Errorf("%s imports %s", from, to)
				}
			}
		}
	}
	if packages < 10 {
		t.Errorf("only %d packages were looked at", packages)
	}
}

// TestNoServerIsLinked checks that the program contains no server of the bus, which only tests need.
func TestNoServerIsLinked(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", module+"cmd/tegracast").Output()
	if err != nil {
		t.Fatal(err)
	}
	if all := string(out); strings.Contains(all, "nats-server") || !strings.Contains(all, "github.com/nats-io/nats.go\n") {
		t.Error("the program must link nats.go, and no part of nats-server")
	}
}
