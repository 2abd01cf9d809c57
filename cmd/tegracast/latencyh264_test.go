// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// exposureH264 is so short that the model makes a frame after the one before has left.
const exposureH264 = 2 * time.Millisecond

const latencyH264YAML = `
web: {listen: none}
sources: [{name: camera, model: {width: 1920, height: 1080, rate: 30, exposure: %v, readout: %v}}]
isp: [{name: isp}]
outputs: [{name: h264, %srtp: {payload: h264, bitrate: %d, destinations: ["127.0.0.1:%d"], capture_time: true}}]
`

// BenchmarkLatencyH264 measures the time from the sensor's last line to the last packet of a picture, as timestamped by
// the kernel on the loopback, of H.264 at 1080p30: with an isp that works while the frame arrives, and on whole frames, in
// turn. At the higher bit rate most pictures have several bursts. It checks nothing.
func BenchmarkLatencyH264(b *testing.B) {
	const rounds = 3
	for _, readout := range []time.Duration{15 * time.Millisecond, 30 * time.Millisecond} {
		for _, kilobits := range []int{6220, 25000} {
			b.Run(fmt.Sprintf("%v-%dk", readout, kilobits), func(b *testing.B) {
				p50, p99 := map[string][]float64{}, map[string][]float64{}
				for range b.N * rounds {
					for _, latency := range []string{"", "latency: frame, "} {
						m := measureH264(b, readout, latency, kilobits)
						p50[latency], p99[latency] = append(p50[latency], m.at(50)), append(p99[latency], m.at(99))
					}
				}
				ours, whole := p50[""], p50["latency: frame, "]
				b.Logf("while it arrives: p50 %.2f p99 %.2f ms; whole: p50 %.2f p99 %.2f ms; p50 by whole %s", ours, p99[""], whole, p99["latency: frame, "], ratios(ours, whole))
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

func measureH264(b *testing.B, readout time.Duration, latency string, kilobits int) (m peerTimes) {
	dir, port := b.TempDir(), rtptest.EvenPorts(b, 1)[0]
	conn := listenStamped(b, port, &unix.SockFprog{Len: uint16(len(markers)), Filter: &markers[0]})
	text := fmt.Sprintf(latencyH264YAML, exposureH264, readout, latency, kilobits, port)
	serve := programtest.StartProgram(b, "serve", "--config", programtest.Write(b, "c.yaml", text), "--sdp-dir", dir)
	programtest.Await(b, filepath.Join(dir, "h264.sdp"))
	begun := time.Now()
	listenMarkers(b, conn, func(packet, control []byte) {
		if at, start, ok := stamps(packet, control); ok && time.Since(begun) > time.Second {
			m.list = append(m.list, at.Sub(start.Add(exposureH264+readout)))
		}
	})
	serve.Stop(b)
	return m
}
