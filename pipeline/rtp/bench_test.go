// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

func BenchmarkPacketizeRaw(b *testing.B) {
	f := rtptest.Format(b, pipeline.UYVY, 1920, 1080, 30)
	for _, crc := range []bool{false, true} {
		b.Run(map[bool]string{false: "plain", true: "checksum"}[crc], func(b *testing.B) {
			s := testPacking(b, Stream{Checksum: crc}, f)
			frame := rtptest.Frame(f, 0)
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Packetize(s.train, frame); err != nil {
					b.Fatal(err)
				}
				s.train.Sum()
			}
			rtptest.PerPacket(b, s.train.Len())
		})
	}
}

// BenchmarkPacketizeJPEG mostly measures image/jpeg.
func BenchmarkPacketizeJPEG(b *testing.B) {
	f := rtptest.Format(b, pipeline.I420, 960, 540, 10)
	s := testPacking(b, Stream{Payload: JPEG, Checksum: true}, f)
	frame := rtptest.Frame(f, 0)
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Packetize(s.train, frame); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(s.train.bytes), "bytes/frame")
}
