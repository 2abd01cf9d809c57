// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// runCameraTests loads vivid, which the machine has loaded once, with three cameras: one that takes the user's memory, one
// with a contiguous allocator, which does not, and one with several planes. TestVivid takes frames of them.
func runCameraTests(t *testing.T, m *Machine, frames int) {
	t.Helper()
	k := m.Kernel()
	module := filepath.Join(k.Dir, "lib/modules", k.Release, "kernel/drivers/media/test-drivers/vivid/vivid.ko")
	if _, err := m.Shell(t.Context(), "rmmod vivid"); err != nil {
		t.Fatal(err)
	}
	if err := m.LoadModule(t.Context(), module, "n_devs=3", "allocators=0,1,0", "multiplanar=1,1,2"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	out, err := m.Shell(ctx, fmt.Sprintf("cameratests -test.run '^TestVivid$' -test.v -test.timeout 0 -vivid %d 2>&1", frames))
	if err != nil || !strings.Contains(out, "--- PASS: TestVivid (") {
		t.Errorf("%v\n%s", err, out)
	}
	t.Log(regexp.MustCompile(`(?m)^ *--- .*$`).FindAllString(out, -1))
}

// TestCameras takes 1,000 frames of each format of vivid's cameras.
func TestCameras(t *testing.T) {
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("LONG: 1,000 frames of each of vivid's formats")
	}
	m := StartTest(t, Config{Modules: []string{"vivid"}, Files: map[string]string{"/usr/bin/cameratests": BuildTests(t, "arm64", "../../capture")}})
	runCameraTests(t, m, 1000)
}
