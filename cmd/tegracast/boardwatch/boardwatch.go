// SPDX-License-Identifier: Apache-2.0

// Package boardwatch tells of the board: its sensors as metrics, and the log when it is throttled.
package boardwatch

import (
	"context"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/board"
	"github.com/tegracast/tegracast/pipeline/web"
)

// Readings are the temperatures of the board in °C, and the power of its rails in W. root is /.
func Readings(root fs.FS) (list []web.Reading) {
	for _, z := range board.Zones(root) {
		list = append(list, web.Reading{Name: z.Name, Value: z.Celsius, Unit: "°C"})
	}
	for _, r := range board.Rails(root) {
		list = append(list, web.Reading{Name: r.Name, Value: r.Volts * r.Amps, Unit: "W", Alarm: r.Alarm})
	}
	return list
}

// Metrics are the board's sensors, read when they are asked for.
type Metrics struct{ Root fs.FS } // /

// Describe implements prometheus.Collector: what there is depends on the board.
func (m *Metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(name, help string, v float64, labels []string, values ...string) {
		d := prometheus.NewDesc("tegracast_board_"+name, help, labels, nil)
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, values...)
	}
	id := board.Identify(m.Root)
	gauge("info", "Always 1; the labels identify the board.", 1, []string{"model", "module", "l4t", "power_mode"},
		id.Model, id.Module, id.L4T, board.PowerMode(m.Root))
	for _, c := range board.Clocks(m.Root) {
		gauge("clock_hertz", "Clock frequency of a CPU, or of another device such as the GPU.", c.Hertz, []string{"clock"}, c.Name)
	}
	seen := map[string]bool{}
	fresh := func(kind, name string) bool { // two of a name would spoil the whole answer
		known := seen[kind+name]
		seen[kind+name] = true
		return !known
	}
	for _, z := range board.Zones(m.Root) {
		if fresh("zone", z.Name) {
			gauge("temperature_celsius", "Temperature of a thermal zone.", z.Celsius, []string{"zone"}, z.Name)
		}
	}
	for _, r := range board.Rails(m.Root) {
		if fresh("rail", r.Name) {
			gauge("rail_volts", "Voltage of a power rail.", r.Volts, []string{"rail"}, r.Name)
			gauge("rail_amperes", "Current of a power rail.", r.Amps, []string{"rail"}, r.Name)
		}
	}
	for _, x := range board.Throttles(m.Root) {
		if fresh("throttle", x.Name) {
			gauge("throttle_state", "Throttling of the board: the state of a cooling device, or the number of over-current events.",
				float64(x.State), []string{"name"}, x.Name)
		}
	}
}

// every is how often the board is looked at for the log.
const every = 10 * time.Second

// Watch tells the log when the board begins to be throttled, or ceases to, until ctx ends.
func Watch(ctx context.Context, log *slog.Logger, root fs.FS) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	before := heldBack(root)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := heldBack(root)
		for _, name := range slices.Sorted(maps.Keys(now)) {
			switch was := before[name]; {
			case now[name] > was:
				log.Warn("the board is throttled", "fault", name, "state", now[name], "before", was)
			case now[name] < was:
				log.Info("the board is throttled less", "fault", name, "state", now[name], "before", was)
			}
		}
		before = now
	}
}

// heldBack is what holds the board back, by name.
func heldBack(root fs.FS) map[string]int {
	list := map[string]int{}
	for _, x := range board.Throttles(root) {
		list[x.Name] = x.State
	}
	for _, r := range board.Rails(root) {
		list["rail "+r.Name] = 0
		if r.Alarm {
			list["rail "+r.Name] = 1
		}
	}
	return list
}
