// SPDX-License-Identifier: Apache-2.0

package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Describe implements prometheus.Collector: a reload may open it.
func (b *Bus) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (b *Bus) Collect(ch chan<- prometheus.Metric) {
	st, is := b.stats()
	if !is {
		return
	}
	emit := func(name, help string, kind prometheus.ValueType, v float64, labels ...string) {
		var names []string
		if len(labels) > 0 {
			names = []string{"reason"}
		}
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("tegracast_bus_"+name, help, names, nil), kind, v, labels...)
	}
	connected := 0.0
	if st.Connected {
		connected = 1
	}
	emit("connected", "1 while the bus can be reached, else 0.", prometheus.GaugeValue, connected)
	emit("links_total", "Connections that were made to the bus.", prometheus.CounterValue, float64(st.Links))
	emit("published_messages_total", "Messages that the bus has acknowledged.", prometheus.CounterValue, float64(st.Published))
	emit("waiting_messages", "Messages that the bus has not acknowledged yet.", prometheus.GaugeValue, float64(st.Waiting))
	emit("stored_bytes", "Bytes of messages that wait on disk.", prometheus.GaugeValue, float64(st.Stored))
	const name, help = "lost_messages_total", "Messages that the bus will never have, by reason: the store was full, the disk failed, the bus refused them."
	emit(name, help, prometheus.CounterValue, float64(st.Full), "full")
	emit(name, help, prometheus.CounterValue, float64(st.Failed), "failed")
	emit(name, help, prometheus.CounterValue, float64(st.Refused), "refused")
}
