// SPDX-License-Identifier: Apache-2.0

package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Describe implements prometheus.Collector. It sends nothing, because a reload may open the bus.
func (b *Bus) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (b *Bus) Collect(ch chan<- prometheus.Metric) {
	st, is := b.Stats()
	if !is {
		return
	}
	emit := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("tegracast_bus_"+name, help, labels, nil)
	}
	connected := 0.0
	if st.Connected {
		connected = 1
	}
	emit(desc("connected", "1 while the bus can be reached, else 0."), prometheus.GaugeValue, connected)
	emit(desc("links_total", "Connections that were made to the bus."), prometheus.CounterValue, float64(st.Links))
	emit(desc("published_messages_total", "Messages that the bus has acknowledged."), prometheus.CounterValue, float64(st.Published))
	emit(desc("waiting_messages", "Messages that the bus has not acknowledged yet."), prometheus.GaugeValue, float64(st.Waiting))
	emit(desc("stored_bytes", "Bytes of messages that wait on disk."), prometheus.GaugeValue, float64(st.Stored))
	lost := desc("lost_messages_total",
		"Messages that the bus will never have, by reason: the store was full, the disk failed, the bus refused them.", "reason")
	emit(lost, prometheus.CounterValue, float64(st.Full), "full")
	emit(lost, prometheus.CounterValue, float64(st.Failed), "failed")
	emit(lost, prometheus.CounterValue, float64(st.Refused), "refused")
}
