// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"fmt"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/report"
	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

const (
	resultsEncoding = "x-tegracast-results"
	resultsHeader   = 4 // bytes: where in the text the packet's part begins
)

// MaxResults is the maximum size of a frame's results in bytes.
const MaxResults = 1 << 18

// resultsPacketizer packs the results of stages: the text of report.Report, split where a packet is full
// (docs/results-output.md, "RTP").
type resultsPacketizer struct {
	headerWriter
	checksum bool
	headers  int // header bytes of a packet
	size     int // text bytes of a packet; the last one may be shorter
}

func newResultsPacketizer(s Stream) *resultsPacketizer {
	p := &resultsPacketizer{headerWriter: newHeaderWriter(s), checksum: s.Checksum}
	p.headers = p.head + resultsHeader
	p.size = s.MTU - ipUDPHeader - p.headers
	return p
}

// NewTrain implements Packetizer.
func (p *resultsPacketizer) NewTrain() (*Train, error) {
	n := (MaxResults + p.size - 1) / p.size
	t, err := newTrain(n, 2, n*p.headers, MaxResults)
	if err != nil {
		return nil, err
	}
	for i := range n {
		h := t.headers[i*p.headers:][:p.headers]
		p.header(h, false)
		be.PutUint32(h[p.head:], uint32(i*p.size))
		t.iov[2*i] = udp.Vector{Base: udp.Address(h), Len: uint64(p.headers)}
	}
	return t, nil
}

// Packetize implements Packetizer. It reads the frame's results, but none of its pixels.
func (p *resultsPacketizer) Packetize(t *Train, f *pipeline.Frame) error {
	text, err := report.Append(t.scratch[:0], f)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrResults, err)
	}
	if len(text) > len(t.scratch) {
		return fmt.Errorf("%w: the results of frame %d have %d bytes, at most %d fit", ErrResults, f.Sequence, len(text), len(t.scratch))
	}
	p.claim(t)
	t.payload, t.info = text, p.info(f)
	t.info.pixels = len(text)
	if p.checksum {
		t.info.crc = CRC(text)
	}
	base := udp.Address(text)
	t.count = 0
	for off := 0; off < len(text); off += p.size {
		n := min(p.size, len(text)-off)
		h := t.headers[t.count*p.headers:][:p.headers]
		p.times(h, uint16(p.next), &t.info)
		if h[1] = p.pt; off+n == len(text) {
			h[1] |= 1 << 7
		}
		t.iov[2*t.count+1] = udp.Vector{Base: base + uintptr(off), Len: uint64(n)}
		p.next, t.count = p.next+1, t.count+1
	}
	t.bytes = len(text) + t.count*p.headers
	return nil
}
