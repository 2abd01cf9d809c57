// SPDX-License-Identifier: Apache-2.0

package lines

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
)

// Metrics exports the counters of the lines.
type Metrics struct{ Lines *Lines }

// Describe implements prometheus.Collector. It sends nothing, because lines come and go.
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
			count("pulses_total", "Pulses driven on a GPIO output line.", b.Pulses)
			count("missed_pulses_total", "Pulses skipped on a GPIO output line because they would have been more than half a period late.", b.Missed)
			count("errors_total", "Changes of a GPIO output line that failed.", b.Errors)
			continue
		}
		count("edges_total", "Edges received on a GPIO input line.", b.Match.Edges)
		count("lost_edges_total", "Edges lost on a GPIO input line because a buffer of the kernel or of this program was full.", b.Lost)
		if b.Records {
			continue
		}
		count("matched_frames_total", "Frames matched with an edge of a GPIO input line.", b.Match.Matched)
		count("unmatched_edges_total", "Edges of a GPIO input line that matched no frame.", b.Match.AloneEdges)
		if name == config.TriggerInLine {
			count("unmatched_frames_total", "Frames that matched no edge of the trigger line.", b.Match.AloneFrames)
		} else {
			emit("pps_offset_seconds", "Offset of this machine's clock at the last pulse per second; positive when the clock is ahead.",
				prometheus.GaugeValue, b.PPS.Seconds())
		}
		emit("frame_offset_seconds", "Time from an edge to the exposure of the last frame that matched one.", prometheus.GaugeValue, b.Match.Offset.Seconds())
		emit("frame_offset_uncertainty_seconds", "Uncertainty of tegracast_gpio_frame_offset_seconds.", prometheus.GaugeValue, b.Match.Uncertainty.Seconds())
	}
}

// Status returns the lines' part of a status line. It omits strobe, reset, LED and the lines of recordings unless they
// have errors.
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
