package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tegracast/board/vjetson"
	"tegracast/fpga/model"
	"tegracast/fpga/vfiouser"
	"tegracast/fpga/vfiouser/endpoint"
)

// newEndpoint puts a card with a camera into a slot.
func newEndpoint(t *testing.T, f vfiouser.Function, line bool) *endpoint.Endpoint {
	t.Helper()
	chart, err := model.TestChartSensor().Crop(320, 240)
	if err != nil {
		t.Fatal(err)
	}
	sensor, err := model.NewSensor(chart)
	if err != nil {
		t.Fatal(err)
	}
	card := model.Config{
		H2C: []model.Interface{model.MemoryMapped}, C2H: []model.Interface{model.MemoryMapped, model.Stream}, Sensors: []*model.Sensor{sensor},
	}
	e, err := endpoint.New(endpoint.Config{Card: card, Function: f, INTx: line})
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

// TestVirtualBoard runs the program on the FPGA model as a PCI Express function of its own, on the way that every board
// takes: vendor 10ee, BARs through the kernel module, XDMA's DMA behind an IOMMU.
func TestVirtualBoard(t *testing.T) {
	if testing.Short() {
		t.Skip("NEEDS a virtual machine, which -short leaves out")
	}
	suspends := map[string]int{"amd64": 3} // Linux's virtio-iommu, which arm64 has here, does not survive one
	for _, arch := range []string{"arm64", "amd64"} {
		t.Run(arch, func(t *testing.T) {
			g := buildGuest(t, arch)
			card := newEndpoint(t, vfiouser.Function{MSI: endpoint.Vectors}, false)
			m := g.boot(t, vjetson.Config{Functions: []string{card.Path()}, Network: true})
			t.Run("conformance", func(t *testing.T) { conformance(t, m, 1) })
			t.Run("loopback", func(t *testing.T) {
				for _, size := range []int{1, 65537, 4 << 20} {
					guestLoopback(t, m, size, model.DefaultRAM)
				}
			})
			t.Run("serve", func(t *testing.T) {
				guestServe(t, m, suspends[arch], func() error { card.Kill(); return card.Insert() })
			})
			t.Run("killed", func(t *testing.T) { killed(t, m) })
			if b := card.Books(); b.Refused != 0 {
				t.Errorf("the IOMMU refused %d accesses: %+v", b.Refused, b.LastRefused)
			}
			t.Run("revocation", func(t *testing.T) { revocations(t, m, card) })
			t.Run("hot unplug", func(t *testing.T) {
				for range 3 {
					unplugged(t, m, model.DefaultRAM)
				}
			})
		})
	}
}

// revocations takes memory from XDMA's DMA in flight. Nothing is written afterwards, and what the core still asks for is
// refused, and reported.
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

// TestVirtualBoards has functions as there are in the field: another id, large and prefetchable BARs, one message, the
// legacy line.
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
	}
	var paths []string
	for _, c := range cards {
		paths = append(paths, c.Path())
	}
	g := buildGuest(t, "arm64")
	m := g.boot(t, vjetson.Config{Functions: paths})
	for n, name := range []string{"10de:0001 with one message", "large and prefetchable BARs", "legacy line", "MSI-X"} {
		t.Run(name, func(t *testing.T) {
			file := fmt.Sprintf("/dev/tegra_p2p%d", n)
			if n == 3 {
				boundBefore(t, m, g, vjetson.FunctionAddress(n))
			} else if n > 0 {
				if err := m.BindAt(t.Context(), vjetson.FunctionAddress(n), "tegra_p2p", file); err != nil {
					t.Fatal(err)
				}
			}
			for _, size := range []string{"1", "1000001"} {
				out, err := m.Shell(t.Context(), "tegracast loopback --device "+file+" --size "+size+" --count 2")
				if err != nil || !strings.Contains(out, "2 of 2 copies of "+size+" bytes right") {
					t.Errorf("%v\n%s", err, out)
				}
			}
			b := cards[n].Books()
			if b.Refused != 0 || b.Raised == 0 {
				t.Errorf("%+v", b)
			}
		})
	}
	t.Run("polled and reset", func(t *testing.T) { polledAndReset(t, m, cards[3], "/dev/tegra_p2p3") })
}

// boundBefore gives a function to Linux's pci-stub, and takes it from there as a person does.
func boundBefore(t *testing.T, m *vjetson.Machine, g guest, address string) {
	t.Helper()
	stub := filepath.Join(g.kernel.Dir, "lib/modules", g.kernel.Release, "kernel/drivers/pci/pci-stub.ko")
	if err := m.LoadModule(t.Context(), stub); err != nil {
		t.Fatal(err)
	}
	at := "/sys/bus/pci/devices/" + address
	out, err := m.Shell(t.Context(), "echo pci-stub > "+at+"/driver_override && echo "+address+" > /sys/bus/pci/drivers_probe && readlink "+at+"/driver")
	if err != nil || !strings.HasSuffix(out, "/pci-stub\n") {
		t.Fatalf("%v\n%s", err, out)
	}
	asked, err := m.Run(t.Context(), "tegracast", "bind", address)
	if err != nil || asked.Status != 1 || !strings.Contains(string(asked.Stderr), address+" (10ee:7028) is driven by pci-stub, and nothing was changed") {
		t.Errorf("%v, status %d: %s", err, asked.Status, asked.Stderr)
	}
	taken, err := m.Run(t.Context(), "tegracast", "bind", "--yes", address)
	if err != nil || taken.Status != 0 || !strings.Contains(string(taken.Stdout), "was taken from pci-stub and is driven by tegra_p2p") {
		t.Errorf("%v, status %d: %s%s", err, taken.Status, taken.Stdout, taken.Stderr)
	}
}

// polledAndReset streams a card that is polled, has its engine stuck, and expects that the program resets the function: that alone
// frees the engine. The card raises no interrupt.
func polledAndReset(t *testing.T, m *vjetson.Machine, card *endpoint.Endpoint, file string) {
	config := strings.NewReplacer("/dev/tegra_p2p0, ", file+", poll: true, ", vjetson.HostAddress, "127.0.0.1").Replace(cameraConfig)
	streamsAfter := func(text string) { // begins to stream after it has said so
		t.Helper()
		const line = "for i in $(seq 1200); do sed -n '/%s/,$p' /run/polled.log | grep -q 'source streaming' && exit 0; usleep 50000; done; cat /run/polled.log; exit 1"
		if out, err := m.Shell(t.Context(), fmt.Sprintf(line, text)); err != nil {
			t.Fatalf("no stream after %q: %v\n%s", text, err, out)
		}
	}
	before := card.Books()
	if out, err := m.Shell(t.Context(), "mkdir -p /run/polled && cat >/run/polled.yaml <<'EOF'\n"+config+"EOF\n"+
		"(tegracast serve --config /run/polled.yaml --sdp-dir /run/polled >/run/polled.log 2>&1; echo $? > /run/status) &"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	streamsAfter("FPGA are polled")
	for _, id := range []model.FaultID{model.F3, model.F8} { // stuck, and the occasion to stop
		if err := card.Card().Inject(id); err != nil {
			t.Fatal(err)
		}
	}
	streamsAfter("function was reset (function level reset)")
	if _, err := m.Shell(t.Context(), "kill -TERM $(pidof tegracast)"); err != nil {
		t.Error(err)
	}
	if out := ended(t, m, "/run/polled.log"); !strings.HasSuffix(out, "\n0\n") || strings.Contains(out, "reset line") {
		t.Errorf("serve ended with:\n%s", out)
	}
	if after := card.Books(); after.Raised != before.Raised || after.Refused != 0 {
		t.Errorf("before %+v, then %+v", before, after)
	}
}
