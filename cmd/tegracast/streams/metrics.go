// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/pipeline/rtp/send"
	"github.com/tegracast/tegracast/pipeline/totals"
)

// Describe implements prometheus.Collector. It sends nothing, because destinations come and go.
func (s *Set) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s *Set) Collect(ch chan<- prometheus.Metric) {
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
	lost := desc("receiver_lost_ratio", "Share of RTP packets lost, from the last RTCP report of the receiver, or of the reader that lost most, 0 to 1.")
	jitter := desc("receiver_jitter_seconds", "Interarrival jitter of RTP packets, from the last RTCP report of the receiver, or of the reader with most.")
	emit := func(output, to string, counts []uint64) {
		for i, n := range counts {
			ch <- prometheus.MustNewConstMetric(counters[i], prometheus.CounterValue, float64(n), output, to)
		}
	}
	for _, x := range s.open() {
		st := x.sink.Stats()
		collectBitrate(ch, x.name, st)
		var clients []totals.Client
		worst := map[string]send.Report{}
		for _, d := range s.receivers(x, st) {
			to, client := x.label(d)
			counts := []uint64{d.Packets, d.Bytes, d.Cut, d.Dropped, d.Refused, d.Errors}
			if client {
				clients = append(clients, totals.Client{Name: d.Reader + d.Address, Group: to, Counts: counts})
			} else {
				emit(x.name, to, counts)
			}
			if r, ok := d.LastReport(); ok {
				w := worst[to]
				worst[to] = send.Report{FractionLost: max(w.FractionLost, r.FractionLost), Jitter: max(w.Jitter, r.Jitter)}
			}
		}
		for to, counts := range x.totals.Count(clients) {
			emit(x.name, to, counts)
		}
		for to, r := range worst {
			ch <- prometheus.MustNewConstMetric(lost, prometheus.GaugeValue, r.FractionLost, x.name, to)
			ch <- prometheus.MustNewConstMetric(jitter, prometheus.GaugeValue, r.Jitter.Seconds(), x.name, to)
		}
	}
}

// label returns a destination's label in metrics, and whether a client has asked for it. The label of a configured
// destination is its address. Destinations of clients are labelled by kind or host, because each has another port.
func (x *stream) label(d send.DestinationStats) (to string, client bool) {
	switch {
	case d.Reader != "":
		return d.Reader, true
	case slices.Contains(x.guests, d.Address):
		return totals.Host(d.Address), true
	}
	return d.Address, false
}
