// SPDX-License-Identifier: Apache-2.0

package group

import (
	"slices"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// BenchmarkTriggers measures how late this machine observes the instants of 100 groups a second.
func BenchmarkTriggers(b *testing.B) {
	m := Metronome{Instants: Instants{Num: 100, Den: 1}, Slack: time.Second}
	var late []time.Duration
	missed := uint64(0)
	for b.Loop() {
		n, more, _ := m.Next(b.Context())
		late, missed = append(late, time.Since(m.At(n))), missed+more
	}
	slices.Sort(late)
	for name, share := range map[string]float64{"p50-µs": 0.5, "p99-µs": 0.99, "max-µs": 1} {
		b.ReportMetric(float64(late[int(share*float64(len(late)-1))].Microseconds()), name)
	}
	b.ReportMetric(float64(missed), "missed")
}

// BenchmarkTake measures what a frame of a group costs, with a member that delivers nothing, so that groups stay open.
func BenchmarkTake(b *testing.B) {
	for name, silent := range map[string]bool{"complete": false, "silent": true} {
		b.Run(name, func(b *testing.B) {
			cfg := Config{Sources: []string{"a", "b"}, Rate: pipeline.Rate{Num: 100, Den: 1}, Tolerance: time.Millisecond}
			g, at := New(cfg), noon
			g.take(1, at, 0, 0, false, at)
			for b.Loop() {
				g.take(0, at, 0, 0, false, at)
				if at = at.Add(10 * time.Millisecond); !silent {
					g.take(1, at, 0, 0, false, at)
				}
			}
		})
	}
}
