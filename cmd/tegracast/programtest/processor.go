// SPDX-License-Identifier: Apache-2.0

package programtest

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Processor returns the CPU time of a process's threads: the first number of /proc/PID/task/TID/schedstat
// (Documentation/scheduler/sched-stats.rst of Linux).
func Processor(t *testing.T, pid int) (took time.Duration) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("process %d has ended, or this kernel has no schedstat: %v", pid, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has ended
		}
		n, err := strconv.ParseInt(strings.Fields(string(b))[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		took += time.Duration(n)
	}
	return took
}

// UDP returns the local addresses of a process's IPv4 UDP sockets (proc_net(5)). For a socket on all addresses it returns
// the loopback's.
func UDP(t *testing.T, pid int) (list []netip.AddrPort) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/udp", pid))
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]bool{}
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, f := range files {
		if to, err := os.Readlink(f); err == nil {
			own[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")] = true
		}
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 10 || !own[f[9]] {
			continue
		}
		at, port, _ := strings.Cut(f[1], ":")
		ip, err := strconv.ParseUint(at, 16, 32) // in the byte order of this machine, which is little endian
		n, perr := strconv.ParseUint(port, 16, 16)
		if err != nil || perr != nil {
			t.Fatalf("%q: %v, %v", line, err, perr)
		}
		a := netip.AddrFrom4([4]byte{byte(ip), byte(ip >> 8), byte(ip >> 16), byte(ip >> 24)})
		if a.IsUnspecified() {
			a = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
		list = append(list, netip.AddrPortFrom(a, uint16(n)))
	}
	return list
}
