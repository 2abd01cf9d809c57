// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/tegracast/tegracast/board/vjetson"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
)

var soakGuest = flag.Duration("soak-guest", 0, "how long TestSoakGuest streams the FPGA's camera in the virtual Jetson, such as 20m")

// TestSoakGuest is TestSoak for the installed service, the kernel module and the FPGA's camera. Neither the service's
// memory nor the kernel's may grow, nor the number of pins, and any report of the kernel fails the test at the machine's
// end.
func TestSoakGuest(t *testing.T) {
	if *soakGuest == 0 {
		t.Skip("NEEDS time: make soak, or -args -soak-guest 20m")
	}
	cfg := serviceConfig(t)
	exe := programtest.Program(t)
	a := &installed{vjetson.StartTest(t, cfg), exe, filepath.Join(t.TempDir(), "raw.sdp")}
	a.install(t)
	a.must(t, "systemctl stop tegracast")
	receiver, port := a.receive(t), 5004
	programtest.Listening(t, receiver.Process.Pid, port)
	a.must(t, "systemctl start tegracast")
	run, err := a.Shell(t.Context(), "echo -n $(systemctl show -P InvocationID tegracast)")
	if err != nil {
		t.Fatal(err)
	}
	pins := 0.0
	flat(t, *soakGuest, plainGrowth, []string{"resident", "slab"}, func() ([]float64, string) {
		text := a.metrics(t)
		now := programtest.Found(t, regexp.MustCompile(`(?m)^tegracast_fpga_pins\{.*\} (\S+)`), text)
		if pins == 0 {
			pins = now
		} else if now != pins {
			t.Errorf("%v pins, %v before", now, pins)
		}
		frames := programtest.Found(t, regexp.MustCompile(`(?m)^tegracast_source_frames_total\{.*\} (\S+)`), text)
		return a.memory(t), fmt.Sprintf(", %.0f pins, %.0f frames", now, frames)
	})
	a.must(t, "systemctl stop tegracast")
	summary, err := a.Shell(t.Context(), "journalctl -q -o cat _SYSTEMD_INVOCATION_ID="+run)
	if err != nil {
		t.Fatal(err)
	}
	account(t, summary, receiver, port)
	a.is(t, noErrors, "")
	a.is(t, "systemctl show -P NRestarts tegracast", "0\n")
}

// receive starts the receiver in the machine's network.
func (a *installed) receive(t *testing.T) *programtest.Process {
	t.Helper()
	c, err := a.HostCommand(context.Background(), a.program, "probe", "--sdp", a.sdp, "--duration", "1000h", "--json")
	if err != nil {
		t.Fatal(err)
	}
	return programtest.StartCommand(t, c)
}

// memory returns the memory of the service and the kernel (proc_meminfo(5), SUnreclaim), in KiB.
func (a *installed) memory(t *testing.T) []float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	text, err := a.Shell(ctx, "cat /proc/$(systemctl show -P MainPID tegracast)/status /proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	return []float64{programtest.Found(t, programtest.VmRSS, text), programtest.Found(t, regexp.MustCompile(`(?m)^SUnreclaim:\s+(\d+) kB$`), text)}
}
