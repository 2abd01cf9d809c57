// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/board"
)

// Metrics exports the board's identity, clocks, sensors and throttling, which it reads at each collection.
type Metrics struct{ Root fs.FS } // the machine's file system

// Describe implements prometheus.Collector. It sends nothing, because the metrics depend on the board.
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
	fresh := func(kind, name string) bool { // a duplicate name would invalidate the whole answer
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

// boardPeriod is the interval of the checks by WatchBoard.
const boardPeriod = 10 * time.Second

// WatchBoard logs when throttling of the board increases and decreases, until ctx ends.
func WatchBoard(ctx context.Context, log *slog.Logger, root fs.FS) {
	tick := time.NewTicker(boardPeriod)
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

// heldBack returns the state of each reason for throttling, by name; 0: inactive.
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
