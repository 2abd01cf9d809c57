// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/pipeline/totals"
)

// Describe implements prometheus.Collector. It sends nothing, because receivers come and go.
func (o *ucxOutputs) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (o *ucxOutputs) Collect(ch chan<- prometheus.Metric) {
	desc := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc("tegracast_ucx_"+name, help, append([]string{"output"}, more...), nil)
	}
	receivers := desc("receivers", "Receivers that take an output by UCX.")
	frames := desc("frames_total", "Frames sent by UCX, to all receivers of an output.")
	lost := desc("lost_frames_total", "Frames that receivers of an output had no credits for.")
	bytes := desc("bytes_total", "Bytes of pixels sent by UCX, to all receivers of an output.")
	sent := desc("receiver_frames_total", "Frames sent by UCX to the receivers at an address.", "receiver")
	without := desc("receiver_lost_frames_total", "Frames that the receivers at an address had no credits for.", "receiver")
	credits := desc("receiver_credits", "Frames that the receivers at an address take now.", "receiver")
	for _, x := range o.open() {
		st := x.is.sink.Stats()
		emit := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, kind, v, append([]string{x.name}, labels...)...)
		}
		emit(receivers, prometheus.GaugeValue, float64(len(st.Receivers)))
		emit(frames, prometheus.CounterValue, float64(st.Frames))
		emit(lost, prometheus.CounterValue, float64(st.Lost))
		emit(bytes, prometheus.CounterValue, float64(st.Bytes))
		var clients []totals.Client
		room := map[string]float64{}
		for _, r := range st.Receivers {
			host := totals.Host(r.Address)
			clients = append(clients, totals.Client{Name: r.Address, Group: host, Counts: []uint64{r.Frames, r.Lost}})
			room[host] += float64(r.Credits)
		}
		for host, counts := range x.is.totals.Count(clients) {
			emit(sent, prometheus.CounterValue, float64(counts[0]), host)
			emit(without, prometheus.CounterValue, float64(counts[1]), host)
		}
		for host, n := range room {
			emit(credits, prometheus.GaugeValue, n, host)
		}
	}
}
