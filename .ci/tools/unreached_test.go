// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"encoding/json"
	"fmt"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// allowed lists functions that no program reaches. Each entry gives the reason: programs of users (a page), or the tests
// of other packages. The calls of cuFile's document are listed in its package (documented).
var allowed = map[string]string{
	"cudahost.Device.FreeMemory":  "tests: no device memory leaks",
	"cudahost.Device.Synchronize": "benchmarks on a GPU",

	"fpga/model.Device.Counters":    "tests: what the FPGA counted",
	"fpga/model.Device.FaultCounts": "tests: the faults that happened",
	"fpga/model.Device.FaultLog":    "tests: the faults that happened",
	"fpga/model.Device.Inject":      "tests: a fault at this moment",
	"fpga/model.Device.SetClockPPM": "tests: an oscillator that is off",
	"fpga/model.Device.SetSink":     "tests: how the FPGA takes an H2C stream",
	"fpga/model.Device.StepClock":   "tests: a clock that steps",
	"fpga/model.Device.Withdraw":    "tests: faults that were asked for and do not happen any more",
	"fpga/model.FaultIDs":           "tests: each fault",
	"fpga/model.FaultPlan.Schedule": "tests: a fault at a known frame",
	"fpga/model.ReadStamp":          "tests: the number that the sensor writes into each frame",
	"fpga/model.Sensor.Frame":       "tests: the frame that must arrive",
	"fpga/model.Sensor.SetLight":    "tests: a scene that changes",

	"fpga/vfiouser/endpoint.Endpoint.Card":   "tests: faults of a card in the virtual Jetson",
	"fpga/vfiouser/endpoint.Endpoint.Remove": "tests: a card that is pulled out",

	"fpga/vfiouser/endpoint.Endpoint.ExpectRefusals": "tests: memory is taken from DMA in flight",

	"tegra/tegrasim.Errnos":     "tests: each errno of a call",
	"tegra/tegrasim.Refusals":   "tests: calls that fail",
	"tegra/tegrasim.Sim.Refuse": "tests: calls that fail",
	"tegra/tegrasim.Sim.Unplug": "tests: a function that goes",

	"fpga/xdma.Ring.Counters":     "tests: the engine's performance counters",
	"fpga/xdma.SendRing.Counters": "tests: the engine's performance counters",
	"fpga/xdma.SendRing.Stats":    "tests: what an H2C stream sent",

	"capture.Replay.Emitted":      "tests: the books of a source",
	"capture.Replay.Frames":       "tests: the books of a source",
	"capture.Replay.Skipped":      "tests: the books of a source",
	"pipeline/ucx.Worker.Connect": "tests: a connection without a listener",

	"pipeline/ucx/frames.Server.Addr": "tests: the port that the kernel chose",

	"pipeline/results.Sink.Addr":  "tests: the port that the kernel chose",
	"pipeline/results.Sink.Stats": "tests: what was sent",
}

// TestEveryFunctionIsReached fails on a function of the library that no program reaches, and on an exception that is no
// longer one. Programs are all packages main. There are two searches. In deadcode's, a function is reached if a call may
// lead to it, but an exported method is already reached when its type becomes an interface value. The other search finds
// those: an exported function or method is reached if a package that is not for tests names it, or if it implements an
// interface.
func TestEveryFunctionIsReached(t *testing.T) {
	unreached, calls := unreachedIn(t), documented(t)
	used := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(unreached)) {
		switch {
		case calls[name]:
			delete(calls, name)
		case strings.HasPrefix(name, cufile+".") && token.IsExported(name[strings.LastIndex(name, ".")+1:]):
			t.Errorf("%s: no program reaches %s: list it in the comment of package cufile, with the case that shows it", unreached[name], name)
		case allowed[name] != "":
			used[name] = true
		default:
			t.Errorf("%s: no program reaches %s: delete it with its tests, or say in allowed who needs it", unreached[name], name)
		}
	}
	for name := range allowed {
		if !used[name] {
			t.Errorf("%s is reached, or has gone: delete it from allowed", name)
		}
	}
	for name := range calls {
		t.Errorf("%s is reached, or has gone: delete it from the comment of package cufile", name)
	}
}

const cufile = "cudahost/cufile"

// documentedLine matches a line of the comment of package cufile with calls that no program reaches, and a case.
var documentedLine = regexp.MustCompile(`(?m)^//   - ((?:\w+\.\w+, )*\w+\.\w+): (002\.[\w.]+)$`)

// documented returns the calls that the comment of package cufile lists as needed by NVIDIA's document alone. It fails
// unless each has a case: a number of the checklist (TestEveryLineHasACase compares that with the cases) that is not
// without one.
func documented(t *testing.T) map[string]bool {
	t.Helper()
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(root(t), cufile, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	numbers := strings.Fields(read("testdata/checklist.txt"))
	without := regexp.MustCompile(`002\.[\w.]+`).FindAllString(read("testdata/without-case.txt"), -1)
	calls := map[string]bool{}
	for _, m := range documentedLine.FindAllStringSubmatch(read("doc.go"), -1) {
		if !slices.Contains(numbers, m[2]) || slices.Contains(without, m[2]) {
			t.Errorf("the comment of package cufile: %s has no case %s", m[1], m[2])
		}
		for call := range strings.SplitSeq(m[1], ", ") {
			calls[cufile+"."+call] = true
		}
	}
	return calls
}

// unreachedIn returns the functions that are unreached on each architecture that has them, with their places.
func unreachedIn(t *testing.T) map[string]string {
	t.Helper()
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}
	files, found := map[string]map[string]bool{}, map[string]map[string]string{}
	for arch := range other {
		all := load(t, arch)
		files[arch], found[arch] = filesOf(t, all), unnamed(t, all)
		maps.Copy(found[arch], uncalled(t, arch))
	}
	both := map[string]string{}
	for arch, functions := range found {
		for name, at := range functions {
			file, _, _ := strings.Cut(at, ":")
			if _, there := found[other[arch]][name]; there || !files[other[arch]][file] {
				both[name] = at
			}
		}
	}
	return both
}

// uncalled returns the functions to which no call from a program leads, as found by deadcode, with their places.
func uncalled(t *testing.T, arch string) map[string]string {
	t.Helper()
	found := map[string]string{}
	var report []struct {
		Path  string
		Funcs []struct {
			Name     string
			Position struct {
				File string
				Line int
			}
		}
	}
	if err := json.Unmarshal(output(t, target(arch), deadcode(t), "-json", "./..."), &report); err != nil {
		t.Fatal(err)
	}
	for _, p := range report {
		if forTests(p.Path) {
			continue
		}
		for _, f := range p.Funcs {
			found[strings.TrimPrefix(p.Path, module)+"."+f.Name] = fmt.Sprintf("%s:%d", f.Position.File, f.Position.Line)
		}
	}
	return found
}

// deadcode returns the path of the tool, which the go command builds and caches.
func deadcode(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(string(output(t, os.Environ(), "go", "-C", ".ci/tools", "tool", "-n", "deadcode")))
}
