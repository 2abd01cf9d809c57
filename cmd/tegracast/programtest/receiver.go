// SPDX-License-Identifier: Apache-2.0

package programtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline/rtp/receive"
)

// segments is the maximum number of packets that the sender passes to the kernel as one datagram (pipeline/rtp/send,
// maxSegments), which the kernel drops and counts as one.
const segments = 64

// Blames reports whether overflow, the number of datagrams that the receiver's socket dropped, accounts for all losses.
func (v Verdict) Blames(overflow uint64) bool {
	return v.Lost >= overflow && v.Lost <= overflow*segments
}

// Received ends a receiver after its socket has been empty for a second, and returns its result and the number of
// datagrams that the kernel has dropped at its socket.
func (p *Process) Received(t *testing.T, port int) (v Verdict, overflow uint64) {
	t.Helper()
	var waiting uint64
	for empty, begin := 0, time.Now(); empty < 100; time.Sleep(10 * time.Millisecond) {
		empty++
		if waiting, overflow, _ = socket(t, p.Process.Pid, port); waiting > 0 {
			empty = 0
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("%d bytes still wait in the receiver's socket", waiting)
		}
	}
	if err := p.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	p.Wait(t, time.Minute) // its status reports losses
	return p.Verdict(t), overflow
}

// Listening waits until a UDP socket in a process's network namespace has the port. It fails the test after a minute.
func Listening(t *testing.T, pid, port int) {
	t.Helper()
	for range 6000 {
		if _, _, open := socket(t, pid, port); open {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("nobody listens at port %d", port)
}

// socket returns the number of bytes waiting in the port's sockets, and the number of datagrams that the kernel dropped
// because their buffers were full (proc_net(5), udp: rx_queue, drops). open is false if there is no socket.
func socket(t *testing.T, pid, port int) (waiting, drops uint64, open bool) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/udp", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if !strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
			continue
		}
		_, queue, _ := strings.Cut(f[4], ":")
		w, wErr := strconv.ParseUint(queue, 16, 64)
		d, dErr := strconv.ParseUint(f[len(f)-1], 10, 64)
		if err := errors.Join(wErr, dErr); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		waiting, drops, open = waiting+w, drops+d, true
	}
	return waiting, drops, open
}

// Verdict is the JSON that probe --json prints.
type Verdict struct {
	Clean bool `json:"clean"`
	receive.Stats
}

// Verdict returns the output of probe --json.
func (p *Process) Verdict(t *testing.T) (v Verdict) {
	t.Helper()
	if err := json.Unmarshal(p.Out.Bytes(), &v); err != nil {
		t.Fatalf("%v in %s\nstderr: %s", err, p.Out.String(), p.Err.String())
	}
	return v
}

// VmRSS matches a process's memory in /proc/PID/status.
var VmRSS = regexp.MustCompile(`(?m)^VmRSS:\s+([0-9]+) kB$`)

// Resident returns a process's memory in KiB.
func Resident(t *testing.T, pid int) float64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatalf("the appliance has ended: %v", err)
	}
	return Found(t, VmRSS, string(b))
}

// Found returns the number that a pattern's parentheses match.
func Found(t *testing.T, pattern *regexp.Regexp, text string) float64 {
	t.Helper()
	m := pattern.FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("there is no %v in:\n%s", pattern, text)
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
