// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/pipeline/infer"
)

// collect exports the model's metrics.
func (m namedModel) collect(ch chan<- prometheus.Metric) {
	desc := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc("tegracast_infer_"+name, help, append([]string{"stage"}, more...), nil)
	}
	emit := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, append([]string{m.name}, labels...)...)
	}
	st := m.Status()
	running := desc("running", "1 for the provider with which a model runs, else 0.", "provider")
	for _, p := range infer.Providers {
		v := 0.0
		if st.State == infer.Running && st.Provider == p {
			v = 1
		}
		emit(running, prometheus.GaugeValue, v, p)
	}
	emit(desc("starts_total", "Starts of the process that runs a model."), prometheus.CounterValue, float64(st.Starts))
	emit(desc("frames_total", "Frames that a model worked on."), prometheus.CounterValue, float64(st.Steps.Frames))
	emit(desc("failed_frames_total", "Frames for which a model's outputs were no results, such as those of a wrong shape."),
		prometheus.CounterValue, float64(st.Steps.Failed))
	emit(desc("lost_frames_total", "Frames that came while a model worked, and that a newer one replaced."), prometheus.CounterValue, float64(st.Steps.Lost))
	seconds := desc("seconds_total", "Time spent on frames, by step: preprocess, run, postprocess.", "step")
	emit(seconds, prometheus.CounterValue, st.Steps.Preprocess.Seconds(), "preprocess")
	emit(seconds, prometheus.CounterValue, st.Steps.Run.Seconds(), "run")
	emit(seconds, prometheus.CounterValue, st.Steps.Postprocess.Seconds(), "postprocess")
}
