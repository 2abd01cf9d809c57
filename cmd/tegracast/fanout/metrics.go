// SPDX-License-Identifier: Apache-2.0

package fanout

import "github.com/prometheus/client_golang/prometheus"

// Describe implements prometheus.Collector: receivers come and go.
func (o *Outputs) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (o *Outputs) Collect(ch chan<- prometheus.Metric) {
	desc := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc("tegracast_ucx_"+name, help, append([]string{"output"}, more...), nil)
	}
	receivers := desc("receivers", "Receivers that take an output by UCX.")
	frames := desc("frames_total", "Frames sent by UCX, to all receivers of an output.")
	lost := desc("lost_frames_total", "Frames that receivers of an output had no credits for.")
	bytes := desc("bytes_total", "Bytes of pixels sent by UCX, to all receivers of an output.")
	sent := desc("receiver_frames_total", "Frames sent by UCX to a receiver that is connected.", "receiver")
	without := desc("receiver_lost_frames_total", "Frames that a receiver that is connected had no credits for.", "receiver")
	credits := desc("receiver_credits", "Frames that a receiver takes now.", "receiver")
	for _, x := range o.open() {
		st := x.is.sink.Stats()
		emit := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, kind, v, append([]string{x.name}, labels...)...)
		}
		emit(receivers, prometheus.GaugeValue, float64(len(st.Receivers)))
		emit(frames, prometheus.CounterValue, float64(st.Frames))
		emit(lost, prometheus.CounterValue, float64(st.Lost))
		emit(bytes, prometheus.CounterValue, float64(st.Bytes))
		for _, r := range st.Receivers {
			emit(sent, prometheus.CounterValue, float64(r.Frames), r.Address)
			emit(without, prometheus.CounterValue, float64(r.Lost), r.Address)
			emit(credits, prometheus.GaugeValue, float64(r.Credits), r.Address)
		}
	}
}
