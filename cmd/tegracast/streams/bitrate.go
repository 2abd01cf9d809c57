// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// collectBitrate exports the bit rate of an output's encoder, if it has one, in bytes, which are Prometheus's base unit.
func collectBitrate(ch chan<- prometheus.Metric, output string, st send.Stats) {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("tegracast_rtp_"+name, help, []string{"output"}, nil)
	}
	rate := desc("encoder_bytes_per_second", "Bytes a second to which H.264 is encoded: fewer while receivers report losses or too little bandwidth.")
	if st.Bits > 0 {
		ch <- prometheus.MustNewConstMetric(rate, prometheus.GaugeValue, float64(st.Bits)/8, output)
	}
}
