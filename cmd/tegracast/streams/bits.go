// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// collectBits exports the bit rate of an output's encoder, if it has one.
func collectBits(ch chan<- prometheus.Metric, output string, st send.Stats) {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("tegracast_rtp_"+name, help, []string{"output"}, nil)
	}
	bits := desc("encoder_bits_per_second", "Bits a second to which H.264 is encoded: fewer while receivers report losses, or that their network takes less.")
	if st.Bits > 0 {
		ch <- prometheus.MustNewConstMetric(bits, prometheus.GaugeValue, float64(st.Bits), output)
	}
}
