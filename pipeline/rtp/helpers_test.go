// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

func testStart() *Start {
	return &Start{SSRC: rtptest.SSRC, Sequence: rtptest.Sequence, Timestamp: rtptest.Timestamp}
}

// packing is a packetizer with a train.
type packing struct {
	Packetizer
	train  *Train
	format pipeline.Format
}

func testPacking(t testing.TB, s Stream, f pipeline.Format) *packing {
	t.Helper()
	p, err := NewPacketizer(s, f)
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
	return &packing{p, tr, f}
}

// packets returns the packets of frame f as they appear on the wire.
func packets(t testing.TB, p *packing, f *pipeline.Frame) [][]byte {
	t.Helper()
	if err := p.Packetize(p.train, f); err != nil {
		t.Fatal(err)
	}
	p.train.Sum()
	return rtptest.Packets(t, p.train)
}
