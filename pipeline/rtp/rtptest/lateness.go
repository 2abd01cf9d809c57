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
	end, longest := make(chan struct{}), make(chan time.Duration)
	started, lost := waited(t), dropped(t)
	go func() {
		var top time.Duration
		for before := started; ; {
			begin := time.Now()
			select {
			case <-end:
				longest <- top
				return
			case <-time.After(lateTick):
			}
			late, now := time.Since(begin)-lateTick, waited(t)
			top, before = max(top, late, now-before), now
		}
	}()
	return func() Lateness {
		close(end)
		return Lateness{<-longest, waited(t) - started, dropped(t) - lost}
	}
}

// waited returns how long the threads of this process have waited for CPUs (the kernel's scheduler/sched-stats.rst: the
// second number).
func waited(t testing.TB) (sum time.Duration) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/schedstat")
	if err != nil || len(files) == 0 {
		t.Errorf("there is no schedstat: %v", err)
	}
	for _, f := range files {
		var ran, wait int64                          // ns
		if text, err := os.ReadFile(f); err == nil { // a thread may have ended
			_, _ = fmt.Sscan(string(text), &ran, &wait)
			sum += time.Duration(wait)
		}
	}
	return sum
}

// dropped returns how many datagrams the kernel has dropped because a socket of this network namespace was full (the
// kernel's networking/snmp_counter.rst: UdpRcvbufErrors).
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
