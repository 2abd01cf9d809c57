// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/board/vjetson"
)

// guestAuto lets automatic exposure control the FPGA's camera through its registers, first from its reset exposure and
// then from that of the previous run, with a different target each time, which the last frames must reach.
func guestAuto(t *testing.T, m *vjetson.Machine) {
	var before time.Duration
	for _, target := range []float64{0.2, 0.05} {
		exposure, level := steered(t, m, target)
		t.Logf("target %v: level %v with %v", target, level, exposure)
		if math.Abs(level/target-1) > 0.1 {
			t.Errorf("level %v, want %v", level, target)
		}
		if before != 0 && exposure >= before/2 {
			t.Errorf("exposure %v, after %v at four times the target", exposure, before)
		}
		before = exposure
	}
}

var steeredTo = regexp.MustCompile(`isp exposure ([0-9.]+ ms) gain [0-9.]+ level ([0-9.]+)\n`)

// steered serves until the isp has made 40 pictures, and returns the final state that the program prints.
func steered(t *testing.T, m *vjetson.Machine, target float64) (exposure time.Duration, level float64) {
	t.Helper()
	auto := fmt.Sprintf("isp:\n  - name: isp\n    auto: {exposure: {target: %v}}", target)
	cfg := filepath.Join(t.TempDir(), "auto.yaml")
	if err := os.WriteFile(cfg, []byte(strings.Replace(cameraConfig, "isp:\n  - name: isp", auto, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.CopyIn(t.Context(), cfg, "/run/auto.yaml"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Shell(t.Context(), "mkdir -p /run/sdp; (tegracast serve --config /run/auto.yaml --sdp-dir /run/sdp >/run/auto.log 2>&1; echo $? > /run/status) & "+
		"until wget -qO- http://127.0.0.1:8080/metrics | awk '/^tegracast_stage_frames_total.*isp/ {n = $2} END {exit n < 40}'; do usleep 200000; done; kill -TERM $(pidof tegracast)"); err != nil {
		t.Error(err)
	}
	said := ended(t, m, "/run/auto.log")
	found := steeredTo.FindStringSubmatch(said)
	if found == nil || !strings.HasSuffix(said, "\n0\n") {
		t.Fatalf("serve ended with:\n%s", said)
	}
	exposure, err := time.ParseDuration(strings.ReplaceAll(found[1], " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	level, _ = strconv.ParseFloat(found[2], 64)
	return exposure, level
}
