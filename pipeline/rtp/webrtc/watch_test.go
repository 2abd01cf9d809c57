// SPDX-License-Identifier: Apache-2.0

package webrtc

import (
	"encoding/binary"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pion/rtcp"
	packets "github.com/pion/rtp"
	pion "github.com/pion/webrtc/v4"

	"github.com/tegracast/tegracast/pipeline/rtp"
)

// TestWatched checks that a viewer gets complete frames starting with a key frame, each with a message that has its
// timestamp, number, time and results, and that another key frame is sent on request.
func TestWatched(t *testing.T) {
	t.Parallel()
	server, _, base := serve(t, usual)
	v := watch(t, base, pion.SettingEngine{})
	if first := v.frame(t); !first.key() {
		t.Errorf("%v is no key frame", first)
	}
	last := v.next(t)
	sequence, began, asked := last.packets[0].SequenceNumber, last.message.Frame, uint64(0)
	for n := 0; n < 40 || asked == 0; n++ {
		if n > 0 && asked == 0 && last.key() {
			asked = last.message.Frame
		}
		if n == 20 {
			if err := v.peer.WriteRTCP([]rtcp.Packet{&rtcp.PictureLossIndication{MediaSSRC: v.ssrc}}); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range last.packets {
			if p.SequenceNumber != sequence || p.Timestamp != last.message.RTP || p.SSRC != v.ssrc {
				t.Fatalf("%v: packet %d with timestamp %d, %d was due", last, p.SequenceNumber, p.Timestamp, sequence)
			}
			sequence++
			got, want := p.GetExtension(v.capture), rtp.NTP(last.message.Captured)
			if v.capture == 0 || len(got) != 8 || binary.BigEndian.Uint64(got) != want {
				t.Fatalf("%v: capture time %x, want %x", last, got, want)
			}
		}
		m := last.message
		if len(m.Results) != 1 || len(m.Results[0].Regions) != 1 || m.Results[0].Regions[0].X != int(m.Frame) {
			t.Fatalf("%v: %+v", last, m)
		}
		f := v.next(t)
		if f.message.Frame <= m.Frame {
			t.Fatalf("%v after frame %d", f, m.Frame)
		}
		last = f
	}
	if asked-began >= 58 { // a periodic one comes 60 frames after the first
		t.Errorf("a key frame was asked for: after frame %d the first is %d", began, asked)
	}
	list := server.Viewers("camera")
	if len(list) != 1 || list[0].Reader != "WebRTC" || list[0].Frames < 40 || list[0].Bytes == 0 || !strings.HasSuffix(v.session, "/"+list[0].Session) || list[0].Session == "" {
		t.Errorf("%+v", list)
	}
}

// TestSilent checks that a sink without viewers encodes nothing.
func TestSilent(t *testing.T) {
	t.Parallel()
	server, sink, base := serve(t, usual)
	v := watch(t, base, pion.SettingEngine{})
	v.next(t)
	if status, _, text := ask(t, http.MethodDelete, v.session, "", ""); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	before := sink.Stats().Frames
	time.Sleep(300 * time.Millisecond)
	if n := sink.Stats().Frames - before; n > 1 { // one was being encoded
		t.Errorf("nobody watches, and %d frames were encoded", n)
	}
	if list := server.Viewers("camera"); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}

// TestStalled checks that a session that accepts no pictures loses only its own, waits for a key frame, and delays
// nobody.
func TestStalled(t *testing.T) {
	_, sink, _ := serve(t, usual)
	v := &session{stream: &stream{sink: sink}, pictures: make(chan *picture, waiting), lost: true}
	v.connected.Store(true)
	key, other := &picture{key: true, payloads: make([][]byte, 3)}, &picture{payloads: make([][]byte, 2)}
	v.offerPicture(other)
	if len(v.pictures) != 0 || v.cut.Load() != 0 {
		t.Error("a session begins without a key frame, or has lost what came before")
	}
	v.frames.Add(1) // it has begun
	for range waiting {
		v.offerPicture(key)
	}
	v.offerPicture(other)
	v.offerPicture(key)
	v.offerPicture(other)
	if v.cut.Load() != 3 || v.dropped.Load() != 7 || !v.lost || v.asked {
		t.Errorf("%d pictures and %d packets are lost; waits for a key frame: %v, asks for it: %v", v.cut.Load(), v.dropped.Load(), v.lost, v.asked)
	}
	for range waiting {
		<-v.pictures
	}
	if v.offerPicture(other); len(v.pictures) != 0 || !v.asked {
		t.Error("a picture came that refers to one that is lost, or no key frame is asked for")
	}
	if v.offerPicture(key); len(v.pictures) != 1 || v.lost {
		t.Error("no picture comes any more")
	}
}

// TestReportsCostBits checks that the bit rate is lowered when a viewer reports losses or the bandwidth of its network,
// and that packets contain their sending time.
func TestReportsCostBits(t *testing.T) {
	t.Parallel()
	_, sink, base := serve(t, usual)
	v := watch(t, base, pion.SettingEngine{})
	sent := v.next(t).packets[0].GetExtension(v.sent)
	if at := (packets.AbsSendTimeExtension{}); at.Unmarshal(sent) != nil || time.Since(at.Estimate(time.Now())) > patience {
		t.Errorf("it was sent at %x", sent)
	}
	tell := func(p rtcp.Packet, until func(bits int) bool) {
		t.Helper()
		for limit := time.Now().Add(patience); ; time.Sleep(time.Second) {
			if err := v.peer.WriteRTCP([]rtcp.Packet{p}); err != nil {
				t.Fatal(err)
			}
			for n := v.next(t).message.Frame; v.next(t).message.Frame < n+2; {
			}
			if until(sink.Stats().Bits) {
				return
			}
			if time.Now().After(limit) {
				t.Fatalf("%T: %d bits", p, sink.Stats().Bits)
			}
		}
	}
	none := &rtcp.ReceiverReport{SSRC: 1, Reports: []rtcp.ReceptionReport{{SSRC: v.ssrc}}}
	tell(none, func(bits int) bool { return bits == 1e6 })
	half := &rtcp.ReceiverReport{SSRC: 1, Reports: []rtcp.ReceptionReport{{SSRC: v.ssrc, FractionLost: 128}}}
	tell(half, func(bits int) bool { return bits <= 750_000 })
	tell(&rtcp.ReceiverEstimatedMaximumBitrate{SenderSSRC: 1, Bitrate: 300_000, SSRCs: []uint32{v.ssrc}}, func(bits int) bool { return bits <= 300_000 })
}
