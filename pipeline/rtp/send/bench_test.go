// SPDX-License-Identifier: Apache-2.0

package send

import (
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// BenchmarkTransmit sends 1080p over the loopback to a socket that is not read, so that little work is spent on
// receiving.
func BenchmarkTransmit(b *testing.B) {
	_, addr := listener(b)
	f := rtptest.Format(b, pipeline.UYVY, 1920, 1080, 30)
	s := testSink(b, Config{Stream: rtp.Stream{Checksum: true}, Destinations: []string{addr}, Pacing: PaceBurst}, f)
	frame := rtptest.Frame(f, 0)
	b.ReportAllocs()
	inTurn(s, func() {
		for b.Loop() {
			if err := s.packer.Packetize(s.trains[0].Train, frame); err != nil {
				b.Error(err)
			}
			s.sender.Send(s.trains[0])
		}
	})
	rtptest.PerPacket(b, s.trains[0].Len())
}
