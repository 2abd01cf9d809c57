package appliance

import (
	"github.com/prometheus/client_golang/prometheus"
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
		desc("packets_total", "Packets that the kernel has taken."),
		desc("bytes_total", "Bytes of these packets, with RTP's header and without UDP's."),
		desc("cut_frames_total", "Frames that were given up, wholly or in part."),
		desc("dropped_packets_total", "Packets of these frames."),
		desc("refused_total", "Answers that nobody listens."),
		desc("errors_total", "Errors of the system's calls."),
	}
	lost := desc("receiver_lost_ratio", "Share of packets lost, by the receiver's last report.")
	jitter := desc("receiver_jitter_seconds", "Jitter of the packets' arrival, by the receiver's last report.")
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
		emit("fpga_pins", "Buffers of memory that are pinned for an FPGA.", "card", name, prometheus.GaugeValue, float64(n.Pins))
		emit("fpga_pinned_bytes", "Memory that is pinned for an FPGA.", "card", name, prometheus.GaugeValue, float64(n.Bytes))
		emit("fpga_revoked_pins_total", "Pins that were taken away.", "card", name, prometheus.CounterValue, float64(n.Revoked))
	}
	for _, f := range m.a.flows {
		for _, k := range f.kernels {
			out := 0.0
			if k.Quarantined() != nil {
				out = 1
			}
			emit("kernel_quarantined", "1 while the kernel is in quarantine and left out.", "stage", k.name, prometheus.GaugeValue, out)
		}
		if c, ok := f.source.(*watchedCamera); ok {
			emit("source_clock_drift_ratio", "Rate error of the FPGA's clock against this machine's; positive when it is fast.",
				"source", f.name, prometheus.GaugeValue, c.Clock().Drift()/1e6)
			emit("source_clock_steps_total", "Steps of either clock, after which the FPGA's time was mapped again.",
				"source", f.name, prometheus.CounterValue, float64(c.Clock().Steps()))
		}
	}
}
