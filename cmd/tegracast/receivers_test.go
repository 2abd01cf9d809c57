package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// segments is how many packets the sender hands over at most as one datagram (pipeline/rtp/send, maxSegments), which the kernel drops
// and counts as one.
const segments = 64

// blames says whether what was lost was lost at the receiver's socket.
func (v verdict) blames(overflow uint64) bool {
	return v.Lost >= overflow && v.Lost <= overflow*segments
}

// received ends a receiver whose socket has been empty for a second, and returns what it has seen and what the kernel has
// dropped at its socket.
func (p *process) received(t *testing.T, port int) (v verdict, overflow uint64) {
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
	p.wait(t, 10*time.Second) // its status tells of losses
	return p.verdict(t), overflow
}

// listening waits until a process's network namespace has the port open.
func listening(t *testing.T, pid, port int) {
	t.Helper()
	for range 1000 {
		if _, _, open := socket(t, pid, port); open {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("nobody listens at port %d", port)
}

// socket is how many bytes wait in the port's socket, and how many datagrams the kernel dropped because its buffer was full
// (proc_net(5), udp: rx_queue, drops).
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
