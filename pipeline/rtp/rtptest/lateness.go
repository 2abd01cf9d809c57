// SPDX-License-Identifier: Apache-2.0

package rtptest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Lateness describes how much a machine has disturbed a test.
type Lateness struct {
	Longest time.Duration // upper bound of the time that a thread of the test waited for a CPU, or a timer was late
	Total   time.Duration // sum of such times over all threads of the test
	Dropped uint64        // datagrams that the kernel has dropped because a socket was full
}

// lateTick is the interval at which the measuring thread checks, and the delay that disturbs a test's stream:
// GStreamer's sockets can hold the packets of about that time.
const lateTick = 10 * time.Millisecond

// Disturbs reports whether a stream of a test may have lost data because of the machine.
func (l Lateness) Disturbs() bool { return l.Dropped > 0 || l.Longest >= lateTick }

// Explains reports whether that many frames, with that period, may have been lost because threads waited for a CPU.
func (l Lateness) Explains(lost uint64, period time.Duration) bool {
	return l.Longest >= period && l.Total >= time.Duration(lost)*period
}

func (l Lateness) String() string {
	return fmt.Sprintf("the machine was late by up to %v, in all by %v, and has dropped %d datagrams", l.Longest, l.Total, l.Dropped)
}

// WatchLateness starts measuring how late this machine is: how long threads of this process wait for a CPU, as counted
// by the kernel, and how late a timer is, in case the machine itself stops. stop ends the measurement and returns its
// result.
func WatchLateness(t testing.TB) (stop func() Lateness) {
	t.Helper()
	end, result := make(chan struct{}), make(chan Lateness)
	threads, lost := waits{}, dropped(t)
	threads.grow(t)
	go func() {
		var l Lateness
		for ending := false; !ending; {
			begin := time.Now()
			select {
			case <-end:
				ending = true
			case <-time.After(lateTick):
				l.Longest = max(l.Longest, time.Since(begin)-lateTick)
			}
			more := threads.grow(t)
			l.Longest, l.Total = max(l.Longest, more), l.Total+more
		}
		result <- l
	}()
	return func() Lateness {
		close(end)
		l := <-result
		l.Dropped = dropped(t) - lost
		return l
	}
}

// waits holds how long each thread of this process has waited for CPUs.
type waits map[string]time.Duration

// grow updates w and returns the sum of the times that threads have waited since the previous call (the kernel's
// scheduler/sched-stats.rst: the second number). Waits of a thread that has ended since then are not counted.
func (w waits) grow(t testing.TB) (sum time.Duration) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/schedstat")
	if err != nil || len(files) == 0 {
		t.Errorf("there is no schedstat: %v", err)
	}
	for _, f := range files {
		var ran, wait time.Duration
		text, err := os.ReadFile(f)
		if err != nil { // the thread has ended
			continue
		}
		_, _ = fmt.Sscan(string(text), (*int64)(&ran), (*int64)(&wait))
		if wait < w[f] { // another thread of the same number
			w[f] = 0
		}
		sum += wait - w[f]
		w[f] = wait
	}
	return sum
}

// dropped returns how many UDP datagrams over IPv4 the kernel has dropped because the receive buffer of a socket of
// this network namespace was full (the kernel's networking/snmp_counter.rst: UdpRcvbufErrors).
func dropped(t testing.TB) (n uint64) {
	t.Helper()
	text, err := os.ReadFile("/proc/thread-self/net/snmp")
	if err != nil {
		t.Error(err)
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case fields[0] != "Udp:":
		case names == nil:
			names = fields
		default:
			for i, name := range names {
				if name == "RcvbufErrors" {
					_, _ = fmt.Sscan(fields[i], &n)
				}
			}
		}
	}
	return n
}
