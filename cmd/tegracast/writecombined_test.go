// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestWriteCombined streams frames in write-combined memory. The stand-in for a GPU reads them, and no output reads them
// with the CPU.
func TestWriteCombined(t *testing.T) {
	programtest.NotShort(t)
	standInGPU(t)
	writeCombinedStreams(t)
}

// TestGPUWriteCombined does the same on a GPU.
func TestGPUWriteCombined(t *testing.T) {
	needGPU(t)
	writeCombinedStreams(t)
}

func writeCombinedStreams(t *testing.T) {
	t.Helper()
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	p, dir := rtptest.EvenPorts(t, 3), t.TempDir()
	program := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "wc.yaml", fmt.Sprintf(programtest.WriteCombined, p[0], p[1], p[2])), "--sdp-dir", dir)
	programtest.Await(t, filepath.Join(dir, "raw.sdp"))
	receiver := programtest.StartProgram(t, "probe", "--sdp", filepath.Join(dir, "raw.sdp"), "--duration", "3s", "--json")
	_ = receiver.Wait(t, time.Minute) // losses are no matter here
	if v := receiver.Verdict(t); v.Matched < 5 || v.Mismatched > 0 {
		t.Errorf("%+v", v)
	}
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p[1]))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); n != 1 {
		t.Errorf("no line of results: %v", err)
	}
	conn.Close()
	program.Stop(t)
	if n := books(t, program.Out.String()); len(n) != 3 || n["raw"][1] == 0 || n["lines"][1] == 0 || n["told"][1] == 0 {
		t.Errorf("summary:\n%s", program.Out.String())
	}
}
