// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cudahost/cufile"
)

// storageMetrics exports how recordings are written and read.
type storageMetrics struct{ flows *flows }

// Describe implements prometheus.Collector.
func (m *storageMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *storageMetrics) Collect(ch chan<- prometheus.Metric) {
	emit := func(name, help, label, value string, mode cufile.Mode) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("tegracast_"+name, help, []string{label, "storage"}, nil), prometheus.GaugeValue, 1, value, modeName(mode))
	}
	for f := range m.flows.read() {
		if r, ok := f.source.(*capture.Recording); ok {
			emit("source_storage_info", "Always 1; the label storage tells who reads a source's recordings: library or compatibility.", "source", f.name, r.Mode())
		}
		for _, o := range f.outputs {
			if o.files != nil {
				emit("output_storage_info", "Always 1; the label storage tells who writes an output's recordings: library or compatibility.", "output", o.name, o.files.Mode())
			}
		}
	}
}
