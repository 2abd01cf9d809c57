// SPDX-License-Identifier: Apache-2.0

package egress

import "github.com/prometheus/client_golang/prometheus"

// Describe implements prometheus.Collector: destinations come and go.
func (s *Streams) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s *Streams) Collect(ch chan<- prometheus.Metric) {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("tegracast_rtp_"+name, help, []string{"output", "destination"}, nil)
	}
	counters := []*prometheus.Desc{
		desc("packets_total", "RTP packets sent."),
		desc("bytes_total", "Bytes of the RTP packets sent, with the RTP header, without the UDP header."),
		desc("cut_frames_total", "Frames of which all or some packets were not sent."),
		desc("dropped_packets_total", "RTP packets not sent because their frame was given up."),
		desc("refused_total", "ICMP answers that no receiver listens at the destination's port."),
		desc("errors_total", "System calls that failed while RTP or RTCP packets were sent."),
	}
	lost := desc("receiver_lost_ratio", "Share of RTP packets lost, from the receiver's last RTCP report, 0 to 1.")
	jitter := desc("receiver_jitter_seconds", "Interarrival jitter of RTP packets, from the receiver's last RTCP report.")
	for _, x := range s.open() {
		st := x.sink.Stats()
		collectBits(ch, x.name, st)
		for _, d := range s.receivers(x, st) {
			for i, n := range []uint64{d.Packets, d.Bytes, d.Cut, d.Dropped, d.Refused, d.Errors} {
				ch <- prometheus.MustNewConstMetric(counters[i], prometheus.CounterValue, float64(n), x.name, d.Address)
			}
			if r, ok := d.LastReport(); ok {
				ch <- prometheus.MustNewConstMetric(lost, prometheus.GaugeValue, r.FractionLost, x.name, d.Address)
				ch <- prometheus.MustNewConstMetric(jitter, prometheus.GaugeValue, r.Jitter.Seconds(), x.name, d.Address)
			}
		}
	}
}
