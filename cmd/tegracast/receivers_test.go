package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// segments is how many packets the sender hands over at most as one datagram (pipeline/rtp, maxSegments), which the kernel drops
// and counts as one.
const segments = 64

// blames says whether what was lost was lost at the receiver's socket.
func (v verdict) blames(overflow uint64) bool {
	return v.Lost >= overflow && v.Lost <= overflow*segments
}

// received ends a receiver, and returns what it has seen and what the kernel has dropped at its socket.
func (p *process) received(t *testing.T, port int) (v verdict, overflow uint64) {
	t.Helper()
	time.Sleep(2 * time.Second) // it takes what waits in its socket
	overflow, _ = overflows(t, p.Process.Pid, port)
	if err := p.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	p.wait(t, 10*time.Second) // its status tells of losses
	return p.verdict(t), overflow
}

// listening waits until a process's network namespace has the port open.
func listening(t *testing.T, pid, port int) {
	t.Helper()
	for range 1000 {
		if _, ok := overflows(t, pid, port); ok {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("nobody listens at port %d", port)
}

// overflows is how many datagrams the kernel dropped because a socket's buffer was full (proc_net(5), udp: drops).
func overflows(t *testing.T, pid, port int) (n uint64, open bool) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/udp", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
			drops, err := strconv.ParseUint(f[len(f)-1], 10, 64)
			if err != nil {
				t.Fatalf("%v in %s", err, line)
			}
			n, open = n+drops, true
		}
	}
	return n, open
}
