// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/pipeline"
)

// collect exports the metrics of a card's clock.
func (c cardClock) collect(ch chan<- prometheus.Metric) {
	desc := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc("tegracast_fpga_clock_"+name, help, append([]string{"card"}, more...), nil)
	}
	emit := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, append([]string{c.Card}, labels...)...)
	}
	if c.Offset != nil {
		emit(desc("offset_seconds", "By how much the clock of an FPGA is ahead of the one that it follows; absent while that is not known."),
			prometheus.GaugeValue, c.Offset.Seconds())
	}
	emit(desc("rate_ratio", "By how much the clock of an FPGA is made to run faster, so that it follows the other one."),
		prometheus.GaugeValue, float64(c.Rate)/1e9)
	emit(desc("steps_total", "Steps by which the clock of an FPGA was set to the one that it follows."), prometheus.CounterValue, float64(c.Steps))
	state := desc("state", "1 for the state of an FPGA's clock, 0 for the others: waiting, slewing, locked, holdover, unsupported.", "state")
	for _, s := range pipeline.ClockStates {
		v := 0.0
		if c.State == s {
			v = 1
		}
		emit(state, prometheus.GaugeValue, v, string(s))
	}
}
