// SPDX-License-Identifier: Apache-2.0

package phc

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/board/vjetson"
)

// TestMock runs TestDevice in the virtual Jetson, with a clock of the kernel's ptp_mock. That library is built with a
// device for it (testdata/device.c), which the Kbuild file writes beside it.
func TestMock(t *testing.T) {
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("NEEDS TEGRACAST_LONG=1: it fetches the kernel's source, once, and boots a machine")
	}
	tests := vjetson.BuildTests(t, "arm64", ".")
	device, err := os.ReadFile("testdata/device.c")
	if err != nil {
		t.Fatal(err)
	}
	k, err := vjetson.FetchSeries(t.Context(), "arm64", "6.12", slog.Default()) // 6.7 is the first that has it
	if err != nil {
		t.Fatal(err)
	}
	module, err := vjetson.BuildFromSource(t.Context(), k, "drivers/ptp", "mockclock", "define device\n"+string(device)+"endef\n"+
		"$(file >$(KBUILD_EXTMOD)/device.c,$(device))\n"+
		"obj-m := mockclock.o\nmockclock-y := ptp_mock.o device.o\nccflags-y := -DCONFIG_PTP_1588_CLOCK_MOCK=1\n", slog.Default())
	if errors.Is(err, vjetson.ErrUnreachable) {
		t.Skipf("NEEDS the source of the kernel, once, from Debian's archive: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	m := vjetson.StartTest(t, vjetson.Config{Kernel: k, Files: map[string]string{"/usr/bin/clocktests": tests}})
	if err := m.LoadModule(t.Context(), module); err != nil {
		t.Fatal(err)
	}
	out, err := m.Shell(t.Context(), "for d in /sys/class/ptp/*; do cat $d/clock_name; clocktests -test.run TestDevice -test.v -clock /dev/${d##*/} 2>&1; done; rmmod mockclock")
	if err != nil || !strings.Contains(out, "Mock-up PTP clock") || !strings.Contains(out, "--- PASS: TestDevice") || strings.Contains(out, "FAIL") {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
