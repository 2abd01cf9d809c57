// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

func testStart() *rtp.Start {
	return &rtp.Start{SSRC: rtptest.SSRC, Sequence: rtptest.Sequence, Timestamp: rtptest.Timestamp}
}

func testStream(t testing.TB, m rtp.Media, onFrame func([]byte, FrameInfo)) *stream {
	t.Helper()
	s, err := newStream(m, onFrame)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A sender makes the packets that the sender of a stream would send.
type sender struct {
	rtp.Packetizer
	train     *rtp.Train
	compounds *rtp.Compounds
	format    pipeline.Format
}

func testSender(t testing.TB, s rtp.Stream, f pipeline.Format) *sender {
	t.Helper()
	p, err := rtp.NewPacketizer(s, f)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := p.NewTrain()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	})
	return &sender{p, tr, rtp.NewCompounds(*s.Start), f}
}

// packets returns the packets of frame f as they appear on the wire.
func packets(t testing.TB, s *sender, f *pipeline.Frame) [][]byte {
	t.Helper()
	if err := s.Packetize(s.train, f); err != nil {
		t.Fatal(err)
	}
	return rtptest.Packets(t, s.train)
}
