// SPDX-License-Identifier: Apache-2.0

package send

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/pion/rtcp"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// forge sends a receiver report with the SSRC of a stream to the stream's RTCP port.
func forge(t *testing.T, s *Sink, from net.Conn, ssrc uint32) {
	t.Helper()
	rr, err := (&rtcp.ReceiverReport{SSRC: ssrc}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := from.Write(rr); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(5 * time.Second); s.sender.identity.wanted.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody has noted the collision")
		}
	}
}

// After a collision the stream sends BYE with the old SSRC, and then uses a new one (RFC 3550 §8.2).
func TestACollisionTakesANewSSRC(t *testing.T) {
	for name, tt := range map[string]struct {
		payload rtp.Payload
		pixel   pipeline.PixelFormat
		ready   bool
	}{"raw": {rtp.Raw, pipeline.UYVY, false}, "packet-ready": {rtp.Raw, pipeline.UYVY, true}, "jpeg": {rtp.JPEG, pipeline.I420, false}} {
		t.Run(name, func(t *testing.T) {
			c, addr := listener(t)
			reports, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: c.LocalAddr().(*net.UDPAddr).Port + 1})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = reports.Close() }()
			plain := rtptest.Format(t, tt.pixel, 64, 48, 100)
			cfg := Config{Stream: rtp.Stream{Payload: tt.payload, Checksum: true, Start: testStart()}, Destinations: []string{addr}}
			f := plain
			if tt.ready {
				f, _ = cfg.PacketReady(plain)
			}
			s := testSink(t, cfg, f)
			stranger, err := net.Dial("udp4", (*s.sender.dests.Load())[0].socket.conn.LocalAddr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = stranger.Close() }()
			var packets [][][]byte
			for n := range 2 {
				frame := rtptest.Frame(plain, n)
				if tt.ready {
					frame = rtptest.PackReady(frame, f)
				}
				if n == 1 {
					forge(t, s, stranger, testStart().SSRC)
				}
				if err := s.packetize(s.trains[n], frame); err != nil {
					t.Fatal(err)
				}
				if sendTrain(s, s.trains[n]) {
					t.Error("failed")
				}
				packets = append(packets, read(t, c, s.trains[n].Len()))
			}
			fresh := s.trains[1].SSRC()
			for n, ssrc := range []uint32{testStart().SSRC, fresh} {
				for i, p := range packets[n] {
					if got := binary.BigEndian.Uint32(p[8:]); got != ssrc {
						t.Fatalf("frame %d, packet %d: SSRC %#x, want %#x", n, i, got, ssrc)
					}
				}
			}
			last, first := packets[0][len(packets[0])-1], packets[1][0]
			if a, b := binary.BigEndian.Uint16(last[2:]), binary.BigEndian.Uint16(first[2:]); fresh == testStart().SSRC || b != a+1 {
				t.Errorf("SSRC %#x, numbers %d and %d", fresh, a, b)
			}
			checkCollisionReports(t, read(t, reports, 3), fresh, uint32(len(packets[1])))
		})
	}
}

// checkCollisionReports expects a checksum with the old SSRC, BYE with it, a checksum with the new SSRC, and the same
// CNAME in all.
func checkCollisionReports(t *testing.T, wire [][]byte, fresh, packets uint32) {
	t.Helper()
	if len(wire) != 3 {
		t.Fatalf("%d compounds, want 3", len(wire))
	}
	names := map[string]bool{}
	for i, b := range wire {
		all, err := rtcp.Unmarshal(b)
		if err != nil {
			t.Fatal(err)
		}
		want := testStart().SSRC
		if i == 2 {
			want = fresh
		}
		sr, sdes := all[0].(*rtcp.SenderReport), all[1].(*rtcp.SourceDescription)
		names[sdes.Chunks[0].Items[0].Text] = true
		if sr.SSRC != want || sdes.Chunks[0].Source != want || i == 2 && sr.PacketCount != packets {
			t.Errorf("compound %d: %v, %v, want SSRC %#x", i, sr, sdes, want)
		}
		switch p := all[2].(type) {
		case *rtcp.Goodbye:
			if i != 1 || p.Sources[0] != want {
				t.Errorf("compound %d: %v", i, p)
			}
		case *rtcp.ApplicationDefined:
			if i == 1 || p.SSRC != want {
				t.Errorf("compound %d: %v", i, p)
			}
		}
	}
	if len(names) != 1 {
		t.Errorf("CNAMEs %v", names)
	}
}

// Repeated collisions with one address are a loop, and forged packets cannot change the SSRC all the time.
func TestCollisionsAreLimited(t *testing.T) {
	var i identity
	i.ssrc.Store(7)
	now := time.Unix(1700000000, 0)
	from := func(n int) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(n))
	}
	for k, tt := range []struct {
		port    int
		after   time.Duration
		changes bool
	}{
		{1, 0, true},
		{1, 5 * time.Second, false}, // known address: a loop
		{2, 9 * time.Second, false}, // too soon
		{2, 11 * time.Second, true},
		{1, 14 * time.Second, false},
		{1, 23 * time.Second, false}, // still known, because it was seen again
		{1, 40 * time.Second, true},  // forgotten
	} {
		if _, changes := i.collide(from(tt.port), now.Add(tt.after)); changes != tt.changes {
			t.Errorf("%d: changes %v", k, changes)
		}
	}
	for n := range 1000 {
		i.collide(from(100+n), now.Add(time.Hour+time.Duration(n)*time.Millisecond))
	}
	if len(i.conflicts) > maxConflicts {
		t.Errorf("%d conflicts are kept", len(i.conflicts))
	}
}

// Reports about the stream from other sources are not collisions.
func TestWhoUsesAnSSRC(t *testing.T) {
	marshal := func(p ...rtcp.Packet) []byte {
		b, err := rtcp.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	rr := &rtcp.ReceiverReport{SSRC: 9, Reports: []rtcp.ReceptionReport{{SSRC: 7}}}
	for name, tt := range map[string]struct {
		b    []byte
		want bool
	}{
		"report about it": {marshal(rr), false},
		"receiver report": {marshal(&rtcp.ReceiverReport{SSRC: 7}), true},
		"sender report":   {marshal(&rtcp.SenderReport{SSRC: 7}), true},
		"later packet":    {marshal(rr, &rtcp.SourceDescription{Chunks: []rtcp.SourceDescriptionChunk{{Source: 7}}}), true},
		"BYE":             {marshal(rr, &rtcp.Goodbye{Sources: []uint32{8, 7}}), true},
		"BYE of others":   {marshal(rr, &rtcp.Goodbye{Sources: []uint32{8, 6}}), false},
		"cut":             {marshal(&rtcp.SenderReport{SSRC: 7})[:20], false},
		"nothing":         {nil, false},
	} {
		if got := uses(tt.b, 7); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
