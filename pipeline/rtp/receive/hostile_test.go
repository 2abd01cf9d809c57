// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestMalformedPayloads changes one packet of a frame in a way that its RFC forbids.
func TestMalformedPayloads(t *testing.T) {
	for name, tt := range map[string]struct {
		p      rtp.Payload
		change func(b []byte) []byte
	}{
		"cut before the line header": {rtp.Raw, func(b []byte) []byte { return b[:15] }},
		"cut data":                   {rtp.Raw, func(b []byte) []byte { return b[:100] }},
		"length of no pixel group":   {rtp.Raw, func(b []byte) []byte { b[15] = 2; return b }},
		"offset in a pixel group":    {rtp.Raw, func(b []byte) []byte { b[15], b[19] = 4, 1; return b }},
		"offset beyond the line":     {rtp.Raw, func(b []byte) []byte { b[19] = 2; return b }},
		"line beyond the picture":    {rtp.Raw, func(b []byte) []byte { b[17] = 24; return b }},
		"second field":               {rtp.Raw, func(b []byte) []byte { b[16] |= 0x80; return b }},
		"continued beyond the end":   {rtp.Raw, func(b []byte) []byte { b[18] |= 0x80; return b[:22] }},
		"no payload":                 {rtp.Raw, func(b []byte) []byte { return b[:12] }},
		"cut RTP header":             {rtp.Raw, func(b []byte) []byte { return b[:11] }},
		"version 1":                  {rtp.Raw, func(b []byte) []byte { b[0] = 1 << 6; return b }},
		"padding of nothing":         {rtp.Raw, func(b []byte) []byte { b[0] |= 1 << 5; b[len(b)-1] = 0; return b }},
		"padding beyond the start":   {rtp.Raw, func(b []byte) []byte { b[0] |= 1 << 5; b[len(b)-1] = 255; return b[:30] }},
		"cut rtp.JPEG header":        {rtp.JPEG, func(b []byte) []byte { return b[:19] }},
		"no scan":                    {rtp.JPEG, func(b []byte) []byte { return b[:20] }},
		"type 0":                     {rtp.JPEG, func(b []byte) []byte { b[16] = 0; return b }},
		"Q without tables":           {rtp.JPEG, func(b []byte) []byte { b[17] = 90; return b }},
		"another Q":                  {rtp.JPEG, func(b []byte) []byte { b[17] = 254; return b }},
		"width 0":                    {rtp.JPEG, func(b []byte) []byte { b[18] = 0; return b }},
		"offset 0 again, no tables":  {rtp.JPEG, func(b []byte) []byte { b[13], b[14], b[15] = 0, 0, 0; return b }},
		"offset beyond the end":      {rtp.JPEG, func(b []byte) []byte { b[13] = 0xff; b[14] = 0xff; return b }},
	} {
		x := newFeed(t, tt.p, 2)
		x.send(0, nil)
		wire := packets(t, x.sink, x.frames[1])
		count := len(wire)
		for i, b := range wire {
			if i == 1 {
				b = tt.change(b)
			}
			x.s.packet(b, x.now)
		}
		if st := x.s.snapshot(); st.Malformed != 1 || st.Interlaced != (name == "second field") || st.Frames != 1 || st.Packets+1 < uint64(count) {
			t.Errorf("%s: %+v", name, st)
		}
	}
}

// TestHostileMarkers sends JPEG fragments that disagree about the end of the frame.
func TestHostileMarkers(t *testing.T) {
	x := newFeed(t, rtp.JPEG, 1)
	wire := packets(t, x.sink, x.frames[0])
	if len(wire) < 4 {
		t.Fatal("too few packets")
	}
	last := wire[len(wire)-1]
	x.s.packet(wire[0], x.now)
	x.s.packet(last, x.now)
	wire[1][1] |= 0x80 // a second end, before the first one
	x.s.packet(wire[1], x.now)
	if st := x.s.snapshot(); st.Malformed != 1 || st.Packets != 3 {
		t.Errorf("%+v", st)
	}
}

// TestOtherSendersPackets sends valid packets that our sender would not send: several lines in a packet, padding, EOI
// included.
func TestOtherSendersPackets(t *testing.T) {
	x := newFeed(t, rtp.Raw, 1)
	wire := packets(t, x.sink, x.frames[0])
	for i := 0; i < len(wire); i += 2 { // two lines per packet, padded
		a, b := wire[i], wire[i+1]
		p := slices.Concat(a[:20], b[14:20], a[20:], b[20:], []byte{0, 0, 0, 4})
		p[0] |= 1 << 5
		p[18] |= 0x80
		x.s.packet(p, x.now)
	}
	if len(x.got) != 1 || !bytes.Equal(x.got[0], rtptest.Lines(x.frames[0])) {
		t.Errorf("two lines a packet: %d frames", len(x.got))
	}
	x = newFeed(t, rtp.Raw, 1)
	wire = packets(t, x.sink, x.frames[0])
	empty := bytes.Clone(wire[0][:20]) // an empty part of a line
	empty[14], empty[15] = 0, 0
	binary.BigEndian.PutUint16(empty[2:], binary.BigEndian.Uint16(empty[2:])-1)
	for _, b := range append([][]byte{empty}, wire...) {
		x.s.packet(b, x.now)
	}
	if len(x.got) != 1 || !bytes.Equal(x.got[0], rtptest.Lines(x.frames[0])) || x.s.stats.Malformed != 0 {
		t.Errorf("an empty part of a line: %d frames", len(x.got))
	}
	x = newFeed(t, rtp.JPEG, 1)
	wire = packets(t, x.sink, x.frames[0])
	n := len(wire) - 1
	wire[n] = append(wire[n], 0xff, 0xd9)
	for _, b := range wire {
		x.s.packet(b, x.now)
	}
	if len(x.got) != 1 || !bytes.HasSuffix(x.got[0], []byte{0xff, 0xd9}) || bytes.HasSuffix(x.got[0], []byte{0xff, 0xd9, 0xff, 0xd9}) {
		t.Error("EOI sent by the sender")
	}
}

// fuzzStream feeds datagrams, each preceded by a two-byte length, and checks that the counters are consistent.
func fuzzStream(f *testing.F, p rtp.Payload, format pipeline.Format) {
	x := newFeedOf(f, p, format, 1)
	var seed []byte
	for _, b := range packets(f, x.sink, x.frames[0]) {
		seed = append(binary.BigEndian.AppendUint16(seed, uint16(len(b))), b...)
	}
	f.Add(seed)
	f.Add(seed[:len(seed)/2])
	f.Fuzz(func(t *testing.T, b []byte) {
		s := testStream(t, x.media, func(b []byte, _ FrameInfo) {
			if p == rtp.Raw && len(b) != format.Size() {
				t.Fatalf("picture of %d bytes", len(b))
			}
		})
		now := time.Unix(1700000000, 0)
		for len(b) > 2 {
			n := min(int(binary.BigEndian.Uint16(b)), len(b)-2)
			s.packet(b[2:2+n], now)
			b, now = b[2+n:], now.Add(time.Millisecond)
		}
		s.finish()
		s.report(now)
		if st := s.snapshot(); st.Lost > 1<<32 || st.Matched+st.Mismatched != 0 {
			t.Fatalf("%+v", st)
		}
	})
}

func FuzzRaw(f *testing.F) { fuzzStream(f, rtp.Raw, rtptest.Format(f, pipeline.UYVY, 16, 4, 30)) }

func FuzzJPEGPackets(f *testing.F) {
	fuzzStream(f, rtp.JPEG, rtptest.Format(f, pipeline.I420, 16, 16, 30))
}

func FuzzH264Packets(f *testing.F) {
	fuzzStream(f, rtp.H264, rtptest.Format(f, pipeline.I420, 32, 32, 30))
}

func FuzzRTCP(f *testing.F) {
	x := newFeed(f, rtp.Raw, 1)
	wire := packets(f, x.sink, x.frames[0])
	c := x.sink.compounds
	f.Add(c.Checksum(c.SenderReport(x.now, 1, 2), x.sink.train.Checksum()))
	f.Add(c.Bye(c.SenderReport(x.now, 1, 2)))
	x.send(0, nil)
	f.Add(x.s.report(x.now))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := testStream(t, x.media, nil)
		for _, w := range wire {
			s.packet(w, x.now)
		}
		s.control(b, netip.AddrPort{}, x.now)
		s.packet(wire[0], x.now)
		s.report(x.now)
		s.finish()
		if st := s.snapshot(); st.Frames != 1 || st.Matched+st.Mismatched > 1 {
			t.Fatalf("%+v", st)
		}
	})
}
