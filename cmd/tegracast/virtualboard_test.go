// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/board/vjetson"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/fpga/rtl/rtltest"
	"github.com/tegracast/tegracast/fpga/vfiouser"
	"github.com/tegracast/tegracast/fpga/vfiouser/endpoint"
)

// newSensor returns a sensor that replays the lower right corner of the test chart.
func newSensor(t testing.TB, width, height int, bare bool) *model.Sensor {
	t.Helper()
	chart, err := model.TestChartSensor().Crop(width, height)
	if err != nil {
		t.Fatal(err)
	}
	chart.Bare = bare
	sensor, err := model.NewSensor(chart)
	if err != nil {
		t.Fatal(err)
	}
	return sensor
}

// messages is a function with MSI only: QEMU ends when one with MSI-X is unplugged.
var messages = vfiouser.Function{MSI: endpoint.Vectors}

// newEndpoint puts a card with a camera into a slot. The machine may refuse its accesses, because programs are killed
// while they stream. Tests that expect no refusals check the card's Books.
func newEndpoint(t *testing.T, f vfiouser.Function, line bool) *endpoint.Endpoint {
	t.Helper()
	e := plug(t, endpoint.Config{Card: model.Full(nil, newSensor(t, 320, 240, false)), Function: f, INTx: line})
	e.ExpectRefusals()
	return e
}

func plug(t *testing.T, cfg endpoint.Config) *endpoint.Endpoint {
	t.Helper()
	e, err := endpoint.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// longRun reports whether the long tests run, too.
var longRun = os.Getenv("TEGRACAST_LONG") != ""

// TestVirtualBoard runs the program with the FPGA model as a PCI Express function of its own, on the path of every board:
// vendor 10ee, BARs through the kernel module, XDMA's DMA behind an IOMMU.
func TestVirtualBoard(t *testing.T) {
	if testing.Short() {
		t.Skip("NEEDS a virtual machine, which -short leaves out")
	}
	for _, arch := range []string{"arm64", "amd64"} {
		t.Run(arch, func(t *testing.T) { virtualBoard(t, buildGuest(t, arch)) })
	}
}

func virtualBoard(t *testing.T, g guest) {
	var m *vjetson.Machine
	take := func() { // revokes what serve has pinned by nv-p2p, which treats any change of a mapping as a revocation
		_, _ = m.Shell(context.Background(), "echo 4 > /proc/$(pidof tegracast)/clear_refs")
	}
	cfg := model.Full(nil, newSensor(t, 320, 240, false), newSensor(t, 320, 240, false))
	cfg.Sinks, cfg.Faults.Revoke = map[int]model.SinkConfig{sinkChannel: {}}, take
	card := plug(t, endpoint.Config{Card: cfg, Function: messages})
	m = g.boot(t, vjetson.Config{Functions: []string{card.Path()}, Network: true, Memory: 640})
	arm64 := g.kernel.Arch == "arm64"
	suspends, sizes, unplugs := 3, []int{1, 65537, 4 << 20}, 1
	if arm64 { // Linux's virtio-iommu does not survive a suspend
		suspends = 0
	}
	if longRun {
		sizes, unplugs = append(sizes, 64<<20), 50
	}
	t.Run("conformance", func(t *testing.T) { conformance(t, m, 1) })
	t.Run("loopback", func(t *testing.T) {
		for _, size := range sizes {
			guestLoopback(t, m, size, model.DefaultRAM)
		}
	})
	t.Run("serve", func(t *testing.T) {
		guestServe(t, m, suspends, func() error { card.Kill(); return card.Insert() })
	})
	t.Run("killed", func(t *testing.T) { killed(t, m) })
	if arm64 {
		t.Run("auto", func(t *testing.T) { guestAuto(t, m) })
	}
	if b := card.Books(); b.Refused != 0 {
		t.Errorf("the IOMMU refused %d accesses: %+v", b.Refused, b.LastRefused)
	}
	card.ExpectRefusals() // from here on memory is revoked during DMA
	t.Run("revocation", func(t *testing.T) { revocations(t, m, card) })
	t.Run("hot unplug", func(t *testing.T) {
		for range unplugs {
			unplugged(t, m, model.DefaultRAM)
		}
	})
	if !arm64 {
		t.Run("suspend under DMA", func(t *testing.T) { lostInFlight(t, m, "suspend") })
		return
	}
	t.Run("halt list", func(t *testing.T) { haltList(t, m) })
	t.Run("faults", func(t *testing.T) {
		sharedCard(t, m, card, faultsUnderWay())
		stopsUnderFaults(t, m, card)
	})
	t.Run("fatal error under DMA", func(t *testing.T) { lostInFlight(t, m, "fatal") })
	t.Run("nv-p2p", func(t *testing.T) {
		g.toNVP2P(t, m)
		guestLoopback(t, m, 4096, model.DefaultRAM)
		sharedCard(t, m, card, []model.FaultID{model.F11})
	})
	t.Run("kexec under DMA", func(t *testing.T) { kexecInFlight(t, m, card) })
}

// revocations revokes memory during XDMA's DMA. Nothing may be written afterwards, and further accesses of the core are
// refused and reported.
func revocations(t *testing.T, m *vjetson.Machine, card *endpoint.Endpoint) {
	faults, err := m.Expect(`virtio_iommu .*page fault|DMAR: `)
	if err != nil {
		t.Fatal(err)
	}
	before := card.Books()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	r, err := m.Run(ctx, "/bin/tests", "-test.run", "^TestRevokedInFlight$", "-test.v", "-device", "/dev/tegra_p2p0")
	if err != nil || r.Status != 0 || !strings.Contains(string(r.Stdout), "--- PASS: TestRevokedInFlight") {
		t.Fatalf("status %d, %v\n%s%s", r.Status, err, r.Stdout, r.Stderr)
	}
	after := card.Books()
	if after.Refused == before.Refused {
		t.Error("no access was refused: no DMA was in flight")
	}
	if _, err := faults.Wait(ctx); err != nil {
		t.Error(err)
	}
	t.Logf("%s%d accesses refused", r.Stdout, after.Refused-before.Refused)
}

// TestVirtualBoards covers the variety of functions in the field: another id, large and prefetchable BARs, one message,
// the legacy line, a stock design's stream.
func TestVirtualBoards(t *testing.T) {
	if testing.Short() {
		t.Skip("NEEDS a virtual machine, which -short leaves out")
	}
	cards := []*endpoint.Endpoint{
		newEndpoint(t, vfiouser.Function{Vendor: 0x10de, Device: 1, MSI: 1}, false),
		newEndpoint(t, vfiouser.Function{MSI: 1, BARs: []vfiouser.BAR{
			{Index: 0, Size: 1 << 20, Prefetchable: true},
			{Index: 2, Size: model.BARSize, Bits64: true, Prefetchable: true},
			{Index: 4, Size: 8 << 30, Bits64: true, Prefetchable: true},
		}}, false),
		newEndpoint(t, vfiouser.Function{}, true),
		newEndpoint(t, vfiouser.Function{MSIX: vfiouser.MSIX{Vectors: endpoint.Vectors}}, false),
		plug(t, endpoint.Config{Card: model.Full(nil, newSensor(t, 320, 240, true)), Function: messages}),
	}
	var paths []string
	for _, c := range cards {
		paths = append(paths, c.Path())
	}
	g := buildGuest(t, "arm64")
	m := g.boot(t, vjetson.Config{Functions: paths, Network: true})
	for n, name := range []string{"10de:0001 with one message", "large and prefetchable BARs", "legacy line", "MSI-X", "bare stream"} {
		file := fmt.Sprintf("/dev/tegra_p2p%d", n)
		if n == 3 {
			boundBefore(t, m, g, vjetson.FunctionAddress(n))
		} else if n > 0 {
			if err := m.BindAt(t.Context(), vjetson.FunctionAddress(n), "tegra_p2p", file); err != nil {
				t.Fatal(err)
			}
		}
		t.Run(name, func(t *testing.T) {
			for _, size := range []string{"1", "1000001"} {
				out, err := m.Shell(t.Context(), "tegracast loopback --device "+file+" --size "+size+" --count 2")
				if err != nil || !strings.Contains(out, "2 of 2 copies of "+size+" bytes right") {
					t.Errorf("%v\n%s", err, out)
				}
			}
			if name == "bare stream" {
				delivers(t, m, "{device: "+file+", width: 320, height: 240, rate: 8, stream: bare, channel: 1}", 20)
			}
			b := cards[n].Books()
			if b.Refused != 0 || b.Raised == 0 {
				t.Errorf("%+v", b)
			}
		})
	}
	t.Run("polled and reset", func(t *testing.T) { polledAndReset(t, m, cards[3], "/dev/tegra_p2p3") })
}

// delivers streams a camera by serve until this host has received a number of frames, all of them right.
func delivers(t *testing.T, m *vjetson.Machine, camera string, frames uint64) {
	t.Helper()
	cfg := programtest.Write(t, "camera.yaml", strings.Replace(cameraConfig, "{device: /dev/tegra_p2p0, width: 320, height: 240, rate: 8}", camera, 1))
	if err := m.CopyIn(t.Context(), cfg, "/run/camera.yaml"); err != nil {
		t.Fatal(err)
	}
	sdp := serving(t, m, "/run/camera.yaml")
	for got, idle := uint64(0), 0; got < frames; {
		n := hostProbe(t, m, sdp, 10*time.Second)
		if got += n; n == 0 {
			idle++
		}
		if idle > 10 {
			t.Fatalf("%d frames came, want %d", got, frames)
		}
	}
	t.Log(stopServing(t, m))
}

// TestVirtualFrames streams for longer, with larger pictures, and those of the simulated FPGA design.
func TestVirtualFrames(t *testing.T) {
	if !longRun {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
	small := plug(t, endpoint.Config{Card: model.Full(nil, newSensor(t, 480, 270, false)), Function: messages})
	large := plug(t, endpoint.Config{Card: model.Full(nil, newSensor(t, 1920, 1080, false)), Function: messages})
	design := plug(t, endpoint.Config{Card: designCard(nil, rtltest.Open(t, "../../fpga/rtl", true)), Function: messages})
	g := buildGuest(t, "arm64")
	m := g.boot(t, vjetson.Config{Functions: []string{small.Path(), large.Path(), design.Path()}, Network: true, Memory: 1024})
	for n := 1; n < 3; n++ {
		if err := m.BindAt(t.Context(), vjetson.FunctionAddress(n), "tegra_p2p", fmt.Sprintf("/dev/tegra_p2p%d", n)); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("480x270", func(t *testing.T) {
		delivers(t, m, "{device: /dev/tegra_p2p0, width: 480, height: 270, rate: 6}", 1000)
	})
	t.Run("1920x1080", func(t *testing.T) {
		delivers(t, m, "{device: /dev/tegra_p2p1, width: 1920, height: 1080, rate: 1/2}", 30)
	})
	t.Run("design", func(t *testing.T) {
		delivers(t, m, "{device: /dev/tegra_p2p2, width: 320, height: 240, rate: 4}", 30)
	})
	for _, card := range []*endpoint.Endpoint{small, large, design} {
		if b := card.Books(); b.Refused != 0 {
			t.Errorf("the IOMMU refused %d accesses: %+v", b.Refused, b.LastRefused)
		}
	}
}
