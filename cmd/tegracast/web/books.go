// SPDX-License-Identifier: Apache-2.0

package web

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/pipeline"
)

// books exports the graph's statistics as metrics. It reads them at each collection and counts nothing itself.
type books struct {
	stats  func() pipeline.Stats
	health func() (ready bool, stalled error)
	list   func() []Output // nil: the states of outputs are not exported
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("tegracast_"+name, help, labels, nil)
}

// Describe implements prometheus.Collector. It sends nothing, because the metrics depend on the configuration.
func (b *books) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (b *books) Collect(ch chan<- prometheus.Metric) {
	emit := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	ready, stalled := b.health()
	emit(desc("ready", "1 when every output is armed, else 0."), prometheus.GaugeValue, number(ready))
	emit(desc("stalled", "1 while a part of the pipeline that should make progress makes none, else 0."), prometheus.GaugeValue, number(stalled != nil))
	st := b.stats()
	sources(st.Sources, emit)
	stages(st.Stages, ch, emit)
	outputs(st.Outputs, ch, emit)
	if b.list == nil {
		return
	}
	state := desc("output_state", "1 for the state that an output is in: running, retrying, ended or stopped.", "output", "state")
	for _, o := range b.list() {
		emit(state, prometheus.GaugeValue, 1, o.Name, string(o.State))
	}
}

type emitter func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string)

func sources(list []pipeline.SourceStats, emit emitter) {
	captured := desc("source_frames_total", "Frames that a source emitted.", "source")
	lost := desc("source_lost_frames_total", "Frames that the sensor counted and the source did not emit.", "source")
	idle := desc("source_idle", "1 while a source has nothing to emit and that is not a fault, as without a trigger; else 0.", "source")
	events := desc("source_events_total", "Events that a source reported, such as frames refused for their CRC, and changes of its state.", "source", "event")
	for _, s := range list {
		emit(captured, prometheus.CounterValue, float64(s.Captured), s.Name)
		emit(lost, prometheus.CounterValue, float64(s.Lost), s.Name)
		emit(idle, prometheus.GaugeValue, number(s.Idle), s.Name)
		for event, n := range s.Report {
			emit(events, prometheus.CounterValue, float64(n), s.Name, event)
		}
	}
}

func stages(list []pipeline.StageStats, ch chan<- prometheus.Metric, emit emitter) {
	offered := desc("stage_offered_frames_total", "Frames that were offered to a stage.", "stage")
	processed := desc("stage_frames_total", "Frames that a stage processed.", "stage")
	dropped := desc("stage_dropped_frames_total", "Frames that a stage dropped, by reason.", "stage", "reason")
	work := desc("stage_work_seconds", "Time that a stage takes to process a frame; for a stage on the GPU, to enqueue the work; "+
		"for one that reads a frame while it arrives, with the time until its last line has come.", "stage")
	latency := desc("stage_latency_seconds", "Time from a frame's last byte in memory until the outputs of a stage are ready.", "stage")
	for _, s := range list {
		emit(offered, prometheus.CounterValue, float64(s.Offered), s.Name)
		emit(processed, prometheus.CounterValue, float64(s.Delivered), s.Name)
		for reason, n := range s.Dropped {
			emit(dropped, prometheus.CounterValue, float64(n), s.Name, reason)
		}
		ch <- histogram(work, s.WorkTimes, s.Name)
		ch <- histogram(latency, s.Latencies, s.Name)
	}
}

func outputs(list []pipeline.OutputStats, ch chan<- prometheus.Metric, emit emitter) {
	captured := desc("output_offered_frames_total", "Frames offered to an output since it was attached.", "output")
	delivered := desc("output_frames_total", "Frames that an output delivered.", "output")
	dropped := desc("output_dropped_frames_total", "Frames dropped on the way to an output, by place and reason.", "output", "place", "reason")
	waiting := desc("output_waiting_frames", "Frames in the queue of an output or being delivered by it.", "output")
	failed := desc("output_failed", "1 while an output that has failed is not open, else 0.", "output")
	faults := desc("output_faults_total", "How often an output failed.", "output")
	latency := desc("output_latency_seconds", "Time from a frame's last byte in memory until an output has delivered the frame.", "output")
	for _, o := range list {
		emit(captured, prometheus.CounterValue, float64(o.Captured), o.Name)
		emit(delivered, prometheus.CounterValue, float64(o.Delivered), o.Name)
		for at, n := range o.Dropped {
			place, reason, _ := strings.Cut(at, "/")
			emit(dropped, prometheus.CounterValue, float64(n), o.Name, place, reason)
		}
		emit(waiting, prometheus.GaugeValue, float64(o.Waiting), o.Name)
		emit(failed, prometheus.GaugeValue, number(o.Error != ""), o.Name)
		emit(faults, prometheus.CounterValue, float64(o.Faults), o.Name)
		ch <- histogram(latency, o.Latencies, o.Name)
	}
}

// histogram returns a distribution as a Prometheus histogram, in seconds.
func histogram(d *prometheus.Desc, times pipeline.Distribution, labels ...string) prometheus.Metric {
	below := map[float64]uint64{}
	for _, b := range times.Below {
		below[b.Limit.Seconds()] = b.Count
	}
	return prometheus.MustNewConstHistogram(d, times.Count, times.Sum.Seconds(), below, labels...)
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
