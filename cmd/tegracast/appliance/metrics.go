// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/pipeline/record"
)

// recordingMetrics exports metrics of the open recordings.
type recordingMetrics struct{ recordings *record.Recordings }

// Describe implements prometheus.Collector.
func (m *recordingMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *recordingMetrics) Collect(ch chan<- prometheus.Metric) {
	emit := emitter(ch)
	for name, st := range m.recordings.States() {
		emit("recording_frames_total", "Frames written to a recording.", "output", name, prometheus.CounterValue, float64(st.Frames))
		emit("recording_missed_frames_total", "Encoded pictures of a stream that its recording could not write. Other recordings count them as dropped frames.",
			"output", name, prometheus.CounterValue, float64(st.Missed))
		emit("recording_bytes_total", "Bytes of the frames written to a recording.", "output", name, prometheus.CounterValue, float64(st.Written))
		emit("recording_files_total", "Files that a recording has begun.", "output", name, prometheus.CounterValue, float64(st.Files))
		emit("recording_write_seconds_total",
			"Time during which a recording waited for the disk to write. If it grows by a second a second, the disk is too slow.", "output", name,
			prometheus.CounterValue, st.Busy.Seconds())
		if st.Free >= 0 {
			emit("recording_free_bytes", "Free space of a recording's file system; absent while the disk does not answer.",
				"output", name, prometheus.GaugeValue, float64(st.Free))
		}
	}
}

// emitter returns a function that sends a metric with one label to ch.
func emitter(ch chan<- prometheus.Metric) func(name, help, label, value string, kind prometheus.ValueType, v float64) {
	return func(name, help, label, value string, kind prometheus.ValueType, v float64) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("tegracast_"+name, help, []string{label}, nil), kind, v, value)
	}
}

// hardwareMetrics exports metrics of the cards' pinned memory, the cameras' clocks, and the user's stages.
type hardwareMetrics struct {
	cards *cards
	flows *flows
}

// Describe implements prometheus.Collector.
func (m *hardwareMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *hardwareMetrics) Collect(ch chan<- prometheus.Metric) {
	emit := emitter(ch)
	for name, open := range m.cards.all() {
		n := open.card.Pins()
		emit("fpga_pins", "Memory buffers that are pinned for an FPGA.", "card", name, prometheus.GaugeValue, float64(n.Pins))
		emit("fpga_pinned_bytes", "Bytes of memory that are pinned for an FPGA.", "card", name, prometheus.GaugeValue, float64(n.Bytes))
		emit("fpga_revoked_pins_total", "Memory pins for an FPGA that the kernel revoked.", "card", name, prometheus.CounterValue, float64(n.Revoked))
	}
	for _, c := range m.cards.clocks() {
		c.collect(ch)
	}
	for f := range m.flows.read() {
		for _, k := range f.kernels {
			out := 0.0
			if k.Quarantined() != nil {
				out = 1
			}
			emit("kernel_quarantined", "1 while a kernel stage is in quarantine and skipped, else 0.", "stage", k.name, prometheus.GaugeValue, out)
		}
		for _, x := range f.externals {
			x.collect(emit)
		}
		for _, x := range f.models {
			x.collect(ch)
		}
		if c, ok := f.source.(*capture.FPGACamera); ok {
			emit("source_clock_drift_ratio", "Rate error of the FPGA's clock against this machine's clock; positive when the FPGA's is fast.",
				"source", f.name, prometheus.GaugeValue, c.Clock().Drift()/1e6)
			emit("source_clock_steps_total", "Steps of the FPGA's or this machine's clock, after each of which the FPGA's time was mapped again.",
				"source", f.name, prometheus.CounterValue, float64(c.Clock().Steps()))
		}
	}
}

// collect exports the stage's metrics.
func (x namedExternal) collect(emit func(name, help, label, value string, kind prometheus.ValueType, v float64)) {
	st := x.Stats()
	emit("external_connected", "1 while the process of an external stage is connected, else 0.", "stage", x.name,
		prometheus.GaugeValue, float64(len(st.Consumers)))
	emit("external_frames_with_results_total", "Frames of an external stage that got results.", "stage", x.name,
		prometheus.CounterValue, float64(st.Answered))
	emit("external_frames_without_results_total",
		"Frames of an external stage that went on, or were dropped, without results.",
		"stage", x.name, prometheus.CounterValue, float64(st.Without))
	emit("external_late_results_total", "Results that came after the deadline, and were dropped.", "stage", x.name,
		prometheus.CounterValue, float64(st.Late))
	emit("external_answer_seconds_total", "Sum of the times from the offer of a frame until its results came, including late ones.", "stage", x.name,
		prometheus.CounterValue, st.Waited.Seconds())
}
