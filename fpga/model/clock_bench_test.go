// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"
	"testing"
	"time"
)

// BenchmarkClock measures how late waits of the real clock end in an otherwise idle process. The waits are as long as
// the readout of 16 lines at 1080p60.
func BenchmarkClock(b *testing.B) {
	c := RealClock()
	var late []time.Duration
	for b.Loop() {
		due := c.Now().Add(220 * time.Microsecond)
		c.Wait(due, nil)
		late = append(late, c.Now().Sub(due))
	}
	slices.Sort(late)
	for _, p := range []int{50, 99} {
		b.ReportMetric(float64(late[len(late)*p/100])/1e3, map[int]string{50: "µs-late-p50", 99: "µs-late-p99"}[p])
	}
}
