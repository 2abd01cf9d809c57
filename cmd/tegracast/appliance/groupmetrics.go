// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/pipeline/group"
)

// groupMetrics exports the books of the groups.
type groupMetrics struct{ groups *group.Set }

// Describe implements prometheus.Collector.
func (m *groupMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *groupMetrics) Collect(ch chan<- prometheus.Metric) {
	desc := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc("tegracast_group_"+name, help, append([]string{"group"}, more...), nil)
	}
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	missing := desc("missing_frames_total", "Frames of a source that are missing in incomplete groups, by reason.", "source", "reason")
	others := desc("other_frames_total", "Frames of a source that are in no complete or incomplete group, by reason.", "source", "reason")
	for _, b := range m.groups.Books() {
		count(desc("complete_total", "Groups with a frame of each source."), b.Complete, b.Group)
		count(desc("incomplete_total", "Groups in which a frame is missing."), b.Incomplete, b.Group)
		count(desc("missed_triggers_total", "Instants of a group at which the program was too late to trigger at least one of its sources."), b.Missed, b.Group)
		count(desc("refused_triggers_total", "Triggers of a group that a source could not take, as while it is opened."), b.Refused, b.Group)
		for _, x := range b.Members {
			for why, n := range x.Missing {
				count(missing, n, b.Group, x.Source, why)
			}
			for why, n := range x.Other {
				count(others, n, b.Group, x.Source, why)
			}
		}
	}
}
