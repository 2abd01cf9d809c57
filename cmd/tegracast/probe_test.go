// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// A sender that dies without BYE before the probe ends is found out.
func TestProbeOfADyingSender(t *testing.T) {
	dir, p := t.TempDir(), rtptest.EvenPorts(t, 3)
	serve := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "two.yaml", fmt.Sprintf(twoYAML, p[0], p[1], p[2])), "--sdp-dir", dir)
	programtest.Await(t, filepath.Join(dir, "two.sdp"))
	saved := filepath.Join(dir, "saved")
	probe := programtest.StartProgram(t, "probe", "--sdp", filepath.Join(dir, "one.sdp"), "--duration", "1h", "--save", saved, "--json")
	programtest.Await(t, saved)
	if err := serve.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	serve.End(t, 10*time.Second)
	time.Sleep(1100 * time.Millisecond)
	if err := probe.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	status := probe.End(t, 20*time.Second)
	if v := probe.Verdict(t); status != exitFailure || v.Clean || v.Frames == 0 || v.Silence < time.Second || v.LastPacket.IsZero() || v.Ended {
		t.Errorf("status %d, %+v", status, v)
	}
}
