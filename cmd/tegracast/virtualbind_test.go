// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/board/vjetson"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/fpga/vfiouser/endpoint"
)

// boundBefore binds a function to Linux's pci-stub, and takes it from there like a user.
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

// polledAndReset streams a polled card, makes its engine hang, and checks that the program resets the function, which
// alone frees the engine. The card raises no interrupt.
func polledAndReset(t *testing.T, m *vjetson.Machine, card *endpoint.Endpoint, file string) {
	config := strings.NewReplacer("/dev/tegra_p2p0, ", file+", poll: true, ", vjetson.HostAddress, "127.0.0.1").Replace(cameraConfig)
	streamsAfter := func(text string) { // begins to stream after it has logged the text
		t.Helper()
		const line = "for i in $(seq 1200); do sed -n '/%s/,$p' /run/serve.log | grep -q 'source streaming' && exit 0; usleep 50000; done; cat /run/serve.log; exit 1"
		if out, err := m.Shell(t.Context(), fmt.Sprintf(line, text)); err != nil {
			t.Fatalf("no stream after %q: %v\n%s", text, err, out)
		}
	}
	before := card.Books()
	if err := m.CopyIn(t.Context(), programtest.Write(t, "polled.yaml", config), "/run/polled.yaml"); err != nil {
		t.Fatal(err)
	}
	serving(t, m, "/run/polled.yaml")
	streamsAfter("FPGA are polled")
	for _, id := range []model.FaultID{model.F3, model.F8} { // the hang, and a reason to stop
		if err := card.Card().Inject(id); err != nil {
			t.Fatal(err)
		}
	}
	streamsAfter("function was reset (function level reset)")
	if out := stopServing(t, m); strings.Contains(out, "reset line") {
		t.Errorf("the reset line was pulsed:\n%s", out)
	}
	if after := card.Books(); after.Raised != before.Raised || after.Refused != 0 {
		t.Errorf("before %+v, then %+v", before, after)
	}
}
