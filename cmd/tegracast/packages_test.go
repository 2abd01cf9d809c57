// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"regexp"
	"testing"

	"github.com/tegracast/tegracast/fpga/vfiouser/endpoint"
)

// packages makes the Debian packages of a version, for one architecture, in a folder.
func packages(t *testing.T, dir, version, arch string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", "-C", "../../systemd/deb", "run", ".", "--root", "../..", "--out", dir, "--version", version, "--arch", arch)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("packages: %v\n%s", err, out)
	}
}

// TestRuleTakesDMACores: the udev rule takes functions with an id that AMD gives to a DMA core, and no others of that vendor.
func TestRuleTakesDMACores(t *testing.T) {
	rule, err := os.ReadFile("../../systemd/dkms/tegra_p2p.rules")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`ATTR\{device\}=="(.*?)"`).FindSubmatch(rule)
	if m == nil {
		t.Fatal("the rule has no device ids")
	}
	for id, want := range map[string]bool{
		fmt.Sprintf("%#x", endpoint.Device): true, "0x7011": true, "0x8038": true, "0x9048": true, "0x903f": true,
		"0x5000": false, "0x6a98": false, "0x7054": false, "0x7023": false, "0xa038": false, "0x70281": false, "0x9234": false,
	} {
		if takes, err := path.Match(string(m[1]), id); takes != want || err != nil {
			t.Errorf("%s: %v %v, want %v", id, takes, err, want)
		}
	}
}
