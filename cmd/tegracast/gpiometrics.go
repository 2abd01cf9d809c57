package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// gpioMetrics are the books of the lines.
type gpioMetrics struct{ pins *pins }

// Describe implements prometheus.Collector: lines come and go.
func (m *gpioMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *gpioMetrics) Collect(ch chan<- prometheus.Metric) {
	for name, b := range m.pins.all() {
		emit := func(metric, help string, kind prometheus.ValueType, v float64) {
			d := prometheus.NewDesc("tegracast_gpio_"+metric, help, []string{"line"}, nil)
			ch <- prometheus.MustNewConstMetric(d, kind, v, name)
		}
		count := func(metric, help string, n uint64) { emit(metric, help, prometheus.CounterValue, float64(n)) }
		if b.output {
			count("pulses_total", "Pulses that were made on a line.", b.pulses)
			count("missed_pulses_total", "Pulses of the trigger that were left out because they would have come a period too late.", b.missed)
			count("errors_total", "Changes of a line that failed.", b.errors)
			continue
		}
		count("edges_total", "Edges whose times are known.", b.match.Edges)
		count("lost_edges_total", "Edges that the kernel or this program had no room for.", b.lost)
		count("matched_frames_total", "Frames that were matched with an edge.", b.match.Matched)
		count("unmatched_edges_total", "Edges without a frame.", b.match.AloneEdges)
		if name == triggerInLine {
			count("unmatched_frames_total", "Frames without an edge of the trigger.", b.match.AloneFrames)
		} else {
			emit("pps_offset_seconds", "By how much this machine's clock was ahead at the last pulse.", prometheus.GaugeValue, b.pps.Seconds())
		}
		emit("frame_offset_seconds", "Time from the edge to the exposure of the last frame that was matched.", prometheus.GaugeValue, b.match.Offset.Seconds())
		emit("frame_offset_uncertainty_seconds", "Uncertainty of that time.", prometheus.GaugeValue, b.match.Uncertainty.Seconds())
	}
}

// gpioLine is what the status line says of the lines: nothing of those without news.
func gpioLine(all map[string]pinBooks) string {
	var s strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch b := all[name]; {
		case name == triggerInLine || name == ppsLine:
			fmt.Fprintf(&s, "  | %s edges %d lost %d matched %d unmatched %d", name, b.match.Edges, b.lost, b.match.Matched, b.match.AloneEdges+b.match.AloneFrames)
		case name == triggerLine:
			fmt.Fprintf(&s, "  | %s pulses %d missed %d", name, b.pulses, b.missed)
		case b.errors > 0:
			fmt.Fprintf(&s, "  | %s errors %d", name, b.errors)
		}
	}
	return s.String()
}

// hardwareMetrics are the books of the cards' pinned memory, of the cameras' clocks, and of the user's kernels.
type hardwareMetrics struct{ a *appliance }

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
			emit("source_clock_drift_ratio", "Rate error of the FPGA's clock against this machine's; positive when it is fast.", "source", f.name, prometheus.GaugeValue, c.Clock().Drift()/1e6)
			emit("source_clock_steps_total", "Steps of either clock, after which the FPGA's time was mapped anew.", "source", f.name, prometheus.CounterValue, float64(c.Clock().Steps()))
		}
	}
}
