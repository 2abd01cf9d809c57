// SPDX-License-Identifier: Apache-2.0

package send

import (
	"log/slog"
	"net/netip"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

func testStart() *rtp.Start {
	return &rtp.Start{SSRC: rtptest.SSRC, Sequence: rtptest.Sequence, Timestamp: rtptest.Timestamp}
}

func testSink(t testing.TB, c Config, f pipeline.Format) *Sink {
	t.Helper()
	c.Logger = slog.New(slog.DiscardHandler)
	s, err := New(c, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// packets returns the packets of frame f as they appear on the wire.
func packets(t testing.TB, s *Sink, f *pipeline.Frame) [][]byte {
	t.Helper()
	if err := s.packer.Packetize(s.trains[0].Train, f); err != nil {
		t.Fatal(err)
	}
	return rtptest.Packets(t, s.trains[0])
}

// inTurn runs a function that sends trains in the sender's turn.
func inTurn(s *Sink, run func()) {
	s.config.Threads.startTurn(&s.sender.turn, 0, run)
	<-s.sender.turn.ended
}

// sendTrain sends a train, and reports whether all destinations failed.
func sendTrain(s *Sink, t *train) (failed bool) {
	inTurn(s, func() { failed = s.sender.Send(t) })
	return failed
}

// at returns a destination whose name is its address.
func at(addr string) Destination { return Destination{addr, netip.MustParseAddrPort(addr)} }
