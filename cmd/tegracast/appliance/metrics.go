// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/capture"
)

// streamMetrics are the counters of the RTP streams.
type streamMetrics struct{ a *Appliance }

// Describe implements prometheus.Collector: destinations come and go.
func (m *streamMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *streamMetrics) Collect(ch chan<- prometheus.Metric) {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("tegracast_rtp_"+name, help, []string{"output", "destination"}, nil)
	}
	counters := []*prometheus.Desc{
		desc("packets_total", "RTP packets sent."),
		desc("bytes_total", "Bytes of the RTP packets sent, with the RTP header, without the UDP header."),
		desc("cut_frames_total", "Frames of which all or some packets were not sent."),
		desc("dropped_packets_total", "RTP packets not sent because their frame was given up."),
		desc("refused_total", "ICMP answers that no receiver listens at the destination's port."),
		desc("errors_total", "System calls that failed while RTP or RTCP packets were sent."),
	}
	lost := desc("receiver_lost_ratio", "Share of RTP packets lost, from the receiver's last RTCP report, 0 to 1.")
	jitter := desc("receiver_jitter_seconds", "Interarrival jitter of RTP packets, from the receiver's last RTCP report.")
	for _, s := range m.a.streams() {
		for _, d := range s.sink.Stats().Destinations {
			for i, n := range []uint64{d.Packets, d.Bytes, d.Cut, d.Dropped, d.Refused, d.Errors} {
				ch <- prometheus.MustNewConstMetric(counters[i], prometheus.CounterValue, float64(n), s.name, d.Address)
			}
			if r, ok := d.LastReport(); ok {
				ch <- prometheus.MustNewConstMetric(lost, prometheus.GaugeValue, r.FractionLost, s.name, d.Address)
				ch <- prometheus.MustNewConstMetric(jitter, prometheus.GaugeValue, r.Jitter.Seconds(), s.name, d.Address)
			}
		}
	}
}

// hardwareMetrics are the books of the cards' pinned memory, of the cameras' clocks, and of the user's kernels.
type hardwareMetrics struct{ a *Appliance }

// Describe implements prometheus.Collector.
func (m *hardwareMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *hardwareMetrics) Collect(ch chan<- prometheus.Metric) {
	emit := func(name, help, label, value string, kind prometheus.ValueType, v float64) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("tegracast_"+name, help, []string{label}, nil), kind, v, value)
	}
	m.a.mu.Lock()
	defer m.a.mu.Unlock()
	for name, card := range m.a.cards {
		n := card.Pins()
		emit("fpga_pins", "Memory buffers that are pinned for an FPGA.", "card", name, prometheus.GaugeValue, float64(n.Pins))
		emit("fpga_pinned_bytes", "Bytes of memory that are pinned for an FPGA.", "card", name, prometheus.GaugeValue, float64(n.Bytes))
		emit("fpga_revoked_pins_total", "Memory pins for an FPGA that the kernel revoked.", "card", name, prometheus.CounterValue, float64(n.Revoked))
	}
	for _, f := range m.a.flows {
		for _, k := range f.kernels {
			out := 0.0
			if k.Quarantined() != nil {
				out = 1
			}
			emit("kernel_quarantined", "1 while a kernel stage is in quarantine and skipped, else 0.", "stage", k.name, prometheus.GaugeValue, out)
		}
		if c, ok := f.source.(*capture.FPGACamera); ok {
			emit("source_clock_drift_ratio", "Rate error of the FPGA's clock against this machine's clock; positive when the FPGA's is fast.",
				"source", f.name, prometheus.GaugeValue, c.Clock().Drift()/1e6)
			emit("source_clock_steps_total", "Steps of the FPGA's or this machine's clock, after each of which the FPGA's time was mapped again.",
				"source", f.name, prometheus.CounterValue, float64(c.Clock().Steps()))
		}
	}
}
