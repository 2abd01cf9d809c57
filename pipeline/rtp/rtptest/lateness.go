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

// Lateness is how much a machine has disturbed a test.
type Lateness struct {
	Longest time.Duration // the longest stretch in which a thread of the test was ready to run and had no processor
	Total   time.Duration // for how long all threads of the test were so, together
	Dropped uint64        // datagrams that the kernel has dropped because a socket was full
}

// lateTick is how often the measuring thread looks, and what disturbs a stream of a test: GStreamer's sockets hold packets of about
// so long.
const lateTick = 10 * time.Millisecond

// Disturbs reports whether a stream of a test may have lost something to the machine.
func (l Lateness) Disturbs() bool { return l.Dropped > 0 || l.Longest >= lateTick }

// Explains reports whether frames of this period may have been lost because threads waited for a processor.
func (l Lateness) Explains(lost uint64, period time.Duration) bool {
	return l.Longest >= period && l.Total >= time.Duration(lost)*period
}

func (l Lateness) String() string {
	return fmt.Sprintf("the machine was late by up to %v, in all by %v, and has dropped %d datagrams", l.Longest, l.Total, l.Dropped)
}

// WatchLateness measures from now on how late this machine is: for how long threads of this process wait for a processor, as the
// kernel counts it, and, when the machine itself stands still, by how much a timer is late. Stop ends the measurement.
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

// waited is how long the threads of this process have waited for processors (the kernel's scheduler/sched-stats.rst: the second
// number).
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

// dropped is how many datagrams the kernel has dropped because a socket of this network namespace was full (the kernel's
// networking/snmp_counter.rst: UdpRcvbufErrors).
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
