// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/board/vjetson"
	"github.com/tegracast/tegracast/board/vjetson/nvp2ptest"
	"github.com/tegracast/tegracast/cmd/tegracast/loopback"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/fpga/edu"
	"github.com/tegracast/tegracast/pipeline/rtp/receive"
)

// guest has the files for the machine: the program and its tests, the conformance suite, the packaged kernel module, its
// tests, nv-p2p, and the module built for that.
type guest struct {
	kernel                                                         vjetson.Kernel
	program, tests, suite, moduleTests, module, provider, nvModule string
	cfg                                                            string
}

// cameraConfig streams the FPGA's camera to the host.
const cameraConfig = `
sources:
  - name: camera
    fpga: {device: /dev/tegra_p2p0, width: 320, height: 240, rate: 8}
isp:
  - name: isp
outputs:
  - name: raw
    rtp: {payload: raw, destinations: ["` + vjetson.HostAddress + `:5004"], checksum: true}
`

// guests holds what has been built for the machines of each architecture.
var guests = map[string]guest{}

// buildGuest builds what a machine needs, once for each architecture.
func buildGuest(t *testing.T, arch string) guest {
	t.Helper()
	if g, ok := guests[arch]; ok {
		return g
	}
	dir := programtest.Folder(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	g := guest{program: in("tegracast"), tests: in("tests"), suite: in("suite"), moduleTests: in("module-tests"), cfg: in("config.yaml")}
	const path = "github.com/tegracast/tegracast/"
	for _, args := range [][]string{
		{"build", "-o", g.program, path + "cmd/tegracast"},
		{"test", "-c", "-o", g.tests, path + "cmd/tegracast"},
		{"test", "-c", "-o", g.suite, path + "tegra/tegratest"},
		{"test", "-c", "-o", g.moduleTests, path + "tegra/kmod/kmodtest/guest"},
	} {
		c := exec.CommandContext(t.Context(), "go", args...)
		c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS="+os.Getenv("GOFLAGS")+" -trimpath -ldflags=-s")
		if b, err := c.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v: %s", strings.Join(args, " "), err, b)
		}
	}
	if err := os.WriteFile(g.cfg, []byte(cameraConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if g.kernel, err = vjetson.Fetch(t.Context(), arch, slog.Default()); err != nil {
		t.Fatal(err)
	}
	provider := nvp2ptest.Best(t, g.kernel, "../../tegra", in("provider"))
	for name, variables := range map[string][]string{"kmod": nil, "nv": {"NVP2P=" + provider.NVP2P}} {
		if err := vjetson.BuildModule(t.Context(), g.kernel, "../../tegra/kmod", in(name), variables...); err != nil {
			t.Fatal(err)
		}
	}
	g.module, g.nvModule, g.provider = in("kmod/tegra_p2p.ko"), in("nv/tegra_p2p.ko"), provider.Module
	guests[arch] = g
	return g
}

// boot starts a machine and binds the function in its slot to the kernel module.
func (g guest) boot(t *testing.T, cfg vjetson.Config, parameters ...string) *vjetson.Machine {
	t.Helper()
	cfg.Arch, cfg.Kernel, cfg.Append = g.kernel.Arch, g.kernel, "slub_debug=FZPU"
	cfg.Files = map[string]string{
		"/bin/tegracast": g.program, "/bin/tests": g.tests, "/bin/suite": g.suite, "/etc/tegracast.yaml": g.cfg,
		"/guest.test": g.moduleTests, "/kernel": g.kernel.Image(),
	}
	m := vjetson.StartTest(t, cfg)
	if err := m.LoadModule(t.Context(), g.module, parameters...); err != nil {
		t.Fatal(err)
	}
	bind(t, m)
	return m
}

// bind binds the function in the slot to the kernel module.
func bind(t *testing.T, m *vjetson.Machine) {
	t.Helper()
	if err := m.Bind(t.Context(), "tegra_p2p", "/dev/tegra_p2p0"); err != nil {
		t.Fatalf("binding: %v", err)
	}
}

// toNVP2P makes the kernel module pin by nv-p2p from now on.
func (g guest) toNVP2P(t *testing.T, m *vjetson.Machine) {
	t.Helper()
	if out, err := m.Shell(t.Context(), "rmmod tegra_p2p"); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if err := errors.Join(m.LoadModule(t.Context(), g.provider), m.LoadModule(t.Context(), g.nvModule, "backend=nvp2p")); err != nil {
		t.Fatal(err)
	}
	bind(t, m)
}

// TestVirtualJetson runs the program and the conformance suite over the real kernel module with QEMU's edu device behind
// an SMMU, and with a function without an IOMMU. The end of a machine fails the test if the kernel has reported anything,
// such as an SMMU event or a write to a slab after it was freed. TestVirtualBoard has the FPGA model.
func TestVirtualJetson(t *testing.T) {
	if testing.Short() {
		t.Skip("NEEDS a virtual machine, which -short leaves out")
	}
	g := buildGuest(t, "arm64")
	t.Run("edu behind an SMMU", func(t *testing.T) {
		m := g.boot(t, vjetson.Config{Edu: true})
		t.Run("conformance", func(t *testing.T) { conformance(t, m, 5) })
		t.Run("loopback", func(t *testing.T) { guestLoopback(t, m, 256<<10, edu.BufferSize) })
		t.Run("hot unplug", func(t *testing.T) { unplugged(t, m, edu.BufferSize) })
		t.Run("nv-p2p", func(t *testing.T) {
			g.toNVP2P(t, m)
			conformance(t, m, 1) // its notifiers take a while to end
			guestLoopback(t, m, 4096, edu.BufferSize)
		})
	})
	t.Run("without IOMMU", func(t *testing.T) {
		m := g.boot(t, vjetson.Config{Devices: []string{"pcie-root-port,id=port1,chassis=2,slot=1", "pci-testdev,bus=port1"}})
		refuses(t, m, "allow_unsafe=1")
	})
}

func conformance(t *testing.T, m *vjetson.Machine, count int) {
	r, err := m.Run(t.Context(), "/bin/suite", "-test.v", "-test.count", fmt.Sprint(count), "-device", "/dev/tegra_p2p0")
	if err != nil || r.Status != 0 || !strings.Contains(string(r.Stdout), "--- PASS: TestDevice/") {
		t.Errorf("status %d, %v\n%s%s", r.Status, err, r.Stdout, r.Stderr)
	}
}

func haltList(t *testing.T, m *vjetson.Machine) {
	r, err := m.Run(t.Context(), "/bin/tests", "-test.run", "^TestHaltList$", "-test.v", "-device", "/dev/tegra_p2p0")
	if err != nil || r.Status != 0 || !strings.Contains(string(r.Stdout), "--- PASS: TestHaltList") {
		t.Errorf("status %d, %v\n%s%s", r.Status, err, r.Stdout, r.Stderr)
	}
}

// guestLoopback copies through the engine's memory, window by window, and compares. One transfer each way per window ends
// with an interrupt. The driver does not wait for one that comes after its tick of 50 ms, which happens on a slow machine:
// so there are three tries.
func guestLoopback(t *testing.T, m *vjetson.Machine, size, window int) {
	t.Helper()
	want := uint64(2 * ((size + window - 1) / window))
	for range 3 {
		got := loopbackOnce(t, m, size)
		if got == want {
			return
		}
		t.Logf("%d interrupts of %d transfers", got, want)
	}
	t.Errorf("three times not all of %d interrupts came", want)
}

// loopbackOnce copies and compares, and returns the number of interrupts that the driver has seen.
func loopbackOnce(t *testing.T, m *vjetson.Machine, size int) uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute) // 64 MiB take a while
	defer cancel()
	r, err := m.Run(ctx, "tegracast", "loopback", "--device", "/dev/tegra_p2p0", "--size", fmt.Sprint(size), "--count", "1", "--json")
	if err != nil || r.Status != 0 {
		t.Fatalf("status %d, %v\n%s%s", r.Status, err, r.Stdout, r.Stderr)
	}
	var result loopback.Result
	if err := json.Unmarshal(r.Stdout, &result); err != nil {
		t.Fatalf("%v\n%s", err, r.Stdout)
	}
	if result.Copies != 1 || result.Wrong != 0 || len(result.Lanes) != 2 || result.Lanes[0].Bytes != uint64(size) || result.Lanes[1].Bytes != uint64(size) {
		t.Errorf("%+v", result)
	}
	return result.Interrupts
}

// unplugged removes the function during a loopback, which must say so, and restores it.
func unplugged(t *testing.T, m *vjetson.Machine, window int) {
	ctx := t.Context()
	if _, err := m.Shell(ctx, "(tegracast loopback --device /dev/tegra_p2p0 --count 1000 >/run/loopback.log 2>&1; echo $? > /run/status) & "+
		"for i in $(seq 1200); do ls -l /proc/$(pidof tegracast)/fd 2>/dev/null | grep -q tegra_p2p0 && exit 0; usleep 50000; done; cat /run/loopback.log; exit 1"); err != nil {
		t.Fatal(err)
	}
	if err := m.HotUnplug(ctx); err != nil {
		t.Fatal(err)
	}
	if said := ended(t, m, "/run/loopback.log"); !strings.HasSuffix(said, "\n1\n") || !strings.Contains(said, "gone") && !strings.Contains(said, "left the bus") {
		t.Errorf("the loopback ended with:\n%s", said)
	}
	if err := m.HotPlug(ctx); err != nil {
		t.Fatal(err)
	}
	bind(t, m)
	guestLoopback(t, m, 4096, window)
}

// refuses checks that loopback refuses the device with a reason.
func refuses(t *testing.T, m *vjetson.Machine, why string) {
	t.Helper()
	r, err := m.Run(t.Context(), "tegracast", "loopback", "--device", "/dev/tegra_p2p0")
	if err != nil || r.Status != 1 || !strings.Contains(string(r.Stderr), why) {
		t.Errorf("%v, status %d: %s, want it to say %q", err, r.Status, r.Stderr, why)
	}
}

// ended waits for the end of a background program, and returns its output followed by its exit status.
func ended(t *testing.T, m *vjetson.Machine, log string) string {
	t.Helper()
	out, err := m.Shell(t.Context(), "for i in $(seq 2400); do [ -s /run/status ] && break; usleep 50000; done; cat "+log+"; cat /run/status; rm -f /run/status")
	if err != nil {
		t.Errorf("it does not end: %v", err)
	}
	return out
}

// guestServe streams the FPGA's camera to this host: a hundred frames, more after each of the suspends during the stream,
// and more after the FPGA was replaced by another one. A reader of all mappings, such as a debugger, disturbs nothing.
func guestServe(t *testing.T, m *vjetson.Machine, suspends int, replace func() error) {
	ctx := t.Context()
	sdp := serving(t, m, "/etc/tegracast.yaml")
	frames := uint64(0)
	for tries := 0; frames < 100 && tries < 60; tries++ { // 8 frames per second, if the machine is not busy
		frames += hostProbe(t, m, sdp, 7*time.Second)
	}
	if frames < 100 {
		t.Errorf("%d frames came", frames)
	}
	for range suspends {
		recovers(t, m, func() error {
			_, err := m.Shell(ctx, "echo devices > /sys/power/pm_test && echo freeze > /sys/power/state")
			return err
		})
	}
	hostProbe(t, m, sdp, 3*time.Second)
	if out, err := m.Shell(ctx, "begun() { grep -c 'source streaming' /run/serve.log; }; n=$(begun); "+
		"echo 4 > /proc/$(pidof tegracast)/clear_refs; sleep 1; [ $(begun) = $n ]"); err != nil {
		t.Errorf("%v: the stream begins again: %s", err, out)
	}
	recovers(t, m, replace)
	hostProbe(t, m, sdp, 3*time.Second)
	refuses(t, m, "another process has opened the device")
	stopServing(t, m)
}

// serving starts serve in the background, which writes /run/serve.log and at its end /run/status, and returns the
// description of its stream raw.
func serving(t *testing.T, m *vjetson.Machine, config string) (sdp string) {
	t.Helper()
	if out, err := m.Shell(t.Context(), "rm -rf /run/sdp /run/status; mkdir /run/sdp; (tegracast serve --log-level debug --config "+config+" --sdp-dir /run/sdp >/run/serve.log 2>&1; echo $? > /run/status) & "+
		"for i in $(seq 2400); do [ -s /run/sdp/raw.sdp ] && exit 0; usleep 50000; done; cat /run/serve.log; exit 1"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	sdp = filepath.Join(t.TempDir(), "raw.sdp")
	if err := m.CopyOut(t.Context(), "/run/sdp/raw.sdp", sdp); err != nil {
		t.Fatal(err)
	}
	return sdp
}

// stopServing ends serve like a service manager, and returns its output.
func stopServing(t *testing.T, m *vjetson.Machine) string {
	t.Helper()
	if _, err := m.Shell(t.Context(), "kill -TERM $(pidof tegracast)"); err != nil {
		t.Error(err)
	}
	said := ended(t, m, "/run/serve.log")
	if !strings.HasSuffix(said, "\n0\n") {
		t.Errorf("serve ended with:\n%s", said)
	}
	return said
}

// killed kills a stream. The next process that opens the device finds it fenced, and lifts the fence.
func killed(t *testing.T, m *vjetson.Machine) {
	if out, err := m.Shell(t.Context(), "rm -f /run/serve.log; mkdir -p /run/sdp; tegracast serve --config /etc/tegracast.yaml --sdp-dir /run/sdp >/run/serve.log 2>&1 & "+
		"for i in $(seq 2400); do grep -q 'source streaming' /run/serve.log && kill -9 $! && { wait $!; exit 0; }; usleep 50000; done; cat /run/serve.log; exit 1"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	guestLoopback(t, m, 256<<10, 64<<10)
}

// recovers disturbs the stream, and waits until its source has restarted.
func recovers(t *testing.T, m *vjetson.Machine, disturb func() error) {
	t.Helper()
	const begun = "grep -c 'source streaming' /run/serve.log"
	before, err := m.Shell(t.Context(), begun)
	if err := errors.Join(err, disturb()); err != nil {
		t.Fatal(err)
	}
	line := "for i in $(seq 2400); do [ $(" + begun + ") -gt " + strings.TrimSpace(before) + " ] && exit 0; usleep 50000; done; cat /run/serve.log; exit 1"
	if out, err := m.Shell(t.Context(), line); err != nil {
		t.Fatalf("the stream does not come back: %v\n%s", err, out)
	}
}

// hostProbe receives the stream for a while. No frame may be incomplete, and every CRC must be right. The last frame may
// come too late to count. A machine that was suspended meanwhile is silent and loses packets, after which hostProbe tries
// again, but not after a wrong byte.
func hostProbe(t *testing.T, m *vjetson.Machine, sdp string, d time.Duration) (frames uint64) {
	t.Helper()
	exe := programtest.Program(t)
	for range 10 {
		c, err := m.HostCommand(t.Context(), exe, "probe", "--sdp", sdp, "--duration", d.String(), "--json")
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.Output() // its status reports losses
		var got struct {
			Clean bool `json:"clean"`
			receive.Stats
		}
		if wrong := json.Unmarshal(out, &got); wrong != nil || got.Mismatched+got.Malformed+got.Foreign > 0 {
			t.Fatalf("probe: %v %v\n%s", err, wrong, out)
		}
		if !got.Clean {
			t.Logf("probe: %v\n%s", err, out)
			continue
		}
		if got.Frames == 0 || got.Matched+1 < got.Frames {
			t.Errorf("not every frame has its CRC right:\n%s", out)
		}
		t.Logf("%d frames, %d CRCs right", got.Frames, got.Matched)
		return got.Frames
	}
	t.Fatalf("no probe of %v is clean", d)
	return 0
}
