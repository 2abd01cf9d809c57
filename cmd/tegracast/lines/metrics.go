package lines

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
)

// Metrics are the books of the lines.
type Metrics struct{ Lines *Lines }

// Describe implements prometheus.Collector: lines come and go.
func (m *Metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for name, b := range m.Lines.Books() {
		emit := func(metric, help string, kind prometheus.ValueType, v float64) {
			d := prometheus.NewDesc("tegracast_gpio_"+metric, help, []string{"line"}, nil)
			ch <- prometheus.MustNewConstMetric(d, kind, v, name)
		}
		count := func(metric, help string, n uint64) { emit(metric, help, prometheus.CounterValue, float64(n)) }
		if b.Output {
			count("pulses_total", "Pulses that were made on a line.", b.Pulses)
			count("missed_pulses_total", "Pulses of the trigger that were left out because they would have come a period too late.", b.Missed)
			count("errors_total", "Changes of a line that failed.", b.Errors)
			continue
		}
		count("edges_total", "Edges whose times are known.", b.Match.Edges)
		count("lost_edges_total", "Edges that the kernel or this program had no room for.", b.Lost)
		count("matched_frames_total", "Frames that were matched with an edge.", b.Match.Matched)
		count("unmatched_edges_total", "Edges without a frame.", b.Match.AloneEdges)
		if name == config.TriggerInLine {
			count("unmatched_frames_total", "Frames without an edge of the trigger.", b.Match.AloneFrames)
		} else {
			emit("pps_offset_seconds", "By how much this machine's clock was ahead at the last pulse.", prometheus.GaugeValue, b.PPS.Seconds())
		}
		emit("frame_offset_seconds", "Time from the edge to the exposure of the last frame that was matched.", prometheus.GaugeValue, b.Match.Offset.Seconds())
		emit("frame_offset_uncertainty_seconds", "Uncertainty of that time.", prometheus.GaugeValue, b.Match.Uncertainty.Seconds())
	}
}

// Status is what a status line says of the lines: nothing of those without news.
func Status(all map[string]Books) string {
	var s strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch b := all[name]; {
		case name == config.TriggerInLine || name == config.PPSLine:
			fmt.Fprintf(&s, "  | %s edges %d lost %d matched %d unmatched %d", name, b.Match.Edges, b.Lost, b.Match.Matched, b.Match.AloneEdges+b.Match.AloneFrames)
		case name == config.TriggerLine:
			fmt.Fprintf(&s, "  | %s pulses %d missed %d", name, b.Pulses, b.Missed)
		case b.Errors > 0:
			fmt.Fprintf(&s, "  | %s errors %d", name, b.Errors)
		}
	}
	return s.String()
}
