// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"bytes"
	"encoding/binary"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestBPictures receives pictures in decoding order, as with B pictures (RFC 6184 §5.1): timestamps go back, and packets
// of neighbouring pictures are reordered.
func TestBPictures(t *testing.T) {
	x := newFeed(t, rtp.H264, 9)
	shown := []int{0, 3, 1, 2, 6, 4, 5, 8, 7} // the place of each picture in the order of presentation
	var wire [][]byte
	for n, f := range x.frames {
		for _, b := range packets(t, x.sink, f) {
			at := uint32(90000 + 3000*shown[n])
			b[4], b[5], b[6], b[7] = byte(at>>24), byte(at>>16), byte(at>>8), byte(at)
			wire = append(wire, b)
		}
	}
	for i := 1; i+1 < len(wire); i += 7 { // not the first: nothing is known before it
		wire[i], wire[i+1] = wire[i+1], wire[i]
	}
	for _, b := range wire {
		x.s.packet(b, x.now)
	}
	x.s.finish()
	if st := x.s.snapshot(); st.Frames != 9 || st.Damaged != 0 || st.Late != 0 || st.Malformed != 0 || st.Lost != 0 || len(x.got) != 9 {
		t.Errorf("%d pictures, %+v", len(x.got), st)
	}
}

// TestPicturesAfterAnOutage checks that a picture that an outage has cut does not stay open after the sequence numbers have
// jumped, also when they have wrapped: each packet at the end of a picture is overtaken by one of the next.
func TestPicturesAfterAnOutage(t *testing.T) {
	for _, first := range []uint16{60000, 100} {
		s := testStream(t, rtp.Media{Payload: rtp.H264, PayloadType: 96}, nil)
		now, number, timestamp := time.Unix(1700000000, 0), first, uint32(1000)
		picture := func() (all [3][]byte) {
			timestamp += 3000
			for i, part := range []byte{0x80, 0x40, 0x40} { // the first slice begins the picture
				b := []byte{0x80, 96, byte(number >> 8), byte(number), 0, 0, 0, 0, 1, 2, 3, 4, 0x41, part}
				binary.BigEndian.PutUint32(b[4:], timestamp)
				if i == 2 {
					b[1] |= 0x80
				}
				all[i], number = b, number+1
			}
			return all
		}
		send := func(packets ...[]byte) {
			for _, b := range packets {
				s.packet(b, now)
			}
		}
		for range 5 {
			x := picture()
			send(x[:]...)
		}
		cut := picture()
		send(cut[0])
		number, timestamp = number+10000, timestamp+90000
		for range 5 {
			x := picture()
			send(x[:]...)
		}
		before := s.snapshot()
		for range 20 {
			x, y := picture(), picture()
			send(x[0], x[1], y[0], x[2], y[1], y[2])
		}
		s.finish()
		after := s.snapshot()
		if n := after.Frames - before.Frames; n != 40 || after.Damaged != before.Damaged || after.Late != 0 {
			t.Errorf("from %d: %d of 40 pictures, %+v, before %+v", first, n, after, before)
		}
	}
}

// TestH264Beginnings checks that a key frame whose parameter sets are lost counts as damaged, whether or not the packet
// before them has arrived.
func TestH264Beginnings(t *testing.T) {
	const key = 15
	for before, want := range []Stats{
		{Frames: key + 1, Matched: key + 1, Damaged: 1, Lost: 2},
		{Frames: key, Matched: key, Damaged: 2, Lost: 3},
	} {
		x := newFeed(t, rtp.H264, key+2)
		x.sink.Packetizer.(interface{ KeyFrame() }).KeyFrame()
		for n := range x.frames {
			x.send(n, func(p [][]byte) [][]byte {
				switch n {
				case key - 1:
					return p[:len(p)-before]
				case key:
					return p[2:]
				}
				return p
			})
		}
		x.expect(want)
	}
}

// TestH264Pieces assembles payloads of other senders: several units in one packet, a picture without parameter sets,
// parts that do not follow one another.
func TestH264Pieces(t *testing.T) {
	for name, tt := range map[string]struct {
		payloads [][]byte
		want     string // the second access unit; empty if it is incomplete
	}{
		"several units":        {[][]byte{{0x78, 0, 2, 0x67, 1, 0, 1, 0x68}, {0x65, 0x80}}, "\x00\x00\x00\x01\x67\x01\x00\x00\x00\x01\x68\x00\x00\x00\x01\x65\x80"},
		"no parameter sets":    {[][]byte{{0x65, 0x80}}, "\x00\x00\x00\x01\x65\x80"},
		"parts":                {[][]byte{{0x7c, 0x85, 0x80}, {0x7c, 0x05, 2}, {0x7c, 0x45, 3}}, "\x00\x00\x00\x01\x65\x80\x02\x03"},
		"a part without end":   {[][]byte{{0x7c, 0x85, 0x80}, {0x7c, 0x05, 2}}, ""},
		"a unit between parts": {[][]byte{{0x7c, 0x85, 0x80}, {0x41, 0x10}, {0x7c, 0x45, 3}}, ""},
		"the second slice":     {[][]byte{{0x41, 0x40}}, ""},
	} {
		d := &h264Depacketizer{}
		var a assembly
		d.beginFrame(&a, 0, true)
		if err := d.addPayload(&a, 9, []byte{0x41, 0x80}, true); err != nil || !d.complete(&a) {
			t.Fatalf("%s: the first unit: %v", name, err)
		}
		d.beginFrame(&a, 3000, false)
		for i, p := range slices.Backward(tt.payloads) {
			if err := d.addPayload(&a, uint64(10+i), p, i == len(tt.payloads)-1); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		got := ""
		if d.complete(&a) {
			b, _, _ := d.frame(&a)
			got = string(b)
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestH264Recovers loses a packet, and decodes the rest with ffmpeg: pictures after the loss are wrong, and from the
// next key frame on they are correct.
func TestH264Recovers(t *testing.T) {
	const lossy, key, frames = 5, 20, 26 // a key frame is sent every 2 s
	f := rtptest.Format(t, pipeline.I420, 320, 180, 10)
	x := newFeedOf(t, rtp.H264, f, frames)
	for n := range frames {
		x.send(n, func(p [][]byte) [][]byte {
			if n == lossy {
				p = slices.Delete(slices.Clone(p), 1, 2)
			}
			return p
		})
	}
	x.expect(Stats{Frames: frames - 1, Matched: frames - 1, Damaged: 1, Lost: 1})
	cmd := exec.Command("ffmpeg", "-loglevel", "error", "-f", "h264", "-i", "-", "-fps_mode", "passthrough", "-f", "rawvideo", "-")
	cmd.Stdin = bytes.NewReader(bytes.Join(x.got, nil))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	var db []float64 // of the last pictures; a lost picture may have a substitute or be absent
	for n, size := frames-1, f.Size(); n > lossy && len(out) >= size; n-- {
		db = append([]float64{rtptest.PSNR(out[len(out)-size:], x.frames[n].Bytes)}, db...)
		out = out[:len(out)-size]
	}
	t.Logf("dB from frame %d on: %.0f", frames-len(db), db)
	if len(db) != frames-1-lossy {
		t.Fatalf("%d pictures behind the loss", len(db))
	}
	if wrong := slices.Min(db[:key-1-lossy]); wrong > 30 {
		t.Errorf("the loss is not seen: %.1f dB", wrong)
	}
	if right := slices.Min(db[key-1-lossy:]); right < 40 {
		t.Errorf("%.1f dB behind the key frame", right)
	}
}
