// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	pion "github.com/pion/rtp"
	"github.com/pion/rtp/codecs"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/codec"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// units is an encoder that returns given access units.
type units struct {
	list [][]byte
	long bool // use start codes with an additional zero
	err  error
	keys []bool // the arguments key of all calls
}

func (u *units) Close() error { return nil }

func (u *units) Encode(dst []byte, _ *pipeline.Frame, key bool) ([]byte, error) {
	u.keys = append(u.keys, key)
	for _, unit := range u.list {
		if u.long {
			dst = append(dst, 0)
		}
		dst = append(append(dst, 0, 0, 1), unit...)
	}
	return dst, u.err
}

func (u *units) SetBitrate(int) error { return nil }

func (u *units) ParameterSets() (sps, pps []byte) {
	return []byte{0x67, 66, 0xc0, 30, 1}, []byte{0x68, 2}
}

// unpacked parses the packets of an access unit with pion, and checks their headers.
func unpacked(t *testing.T, wire [][]byte, mtu int) []byte {
	t.Helper()
	var h codecs.H264Packet
	var out []byte
	for i, b := range wire {
		var p pion.Packet
		if err := p.Unmarshal(b); err != nil {
			t.Fatal(err)
		}
		if p.PayloadType != 98 || p.Marker != (i == len(wire)-1) || len(b)+48 > mtu {
			t.Fatalf("packet %d of %d, %d bytes: %v", i, len(wire), len(b), p.Header)
		}
		unit, err := h.Unmarshal(p.Payload)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, unit...)
	}
	return out
}

// byteStream returns the units as a byte stream with pion's start codes.
func byteStream(list [][]byte) (stream []byte) {
	for _, unit := range list {
		stream = append(append(stream, 0, 0, 0, 1), unit...)
	}
	return stream
}

// TestH264PacketsByPion packs units of all lengths close to that of a packet. The checksum covers the units.
func TestH264PacketsByPion(t *testing.T) {
	f := rtptest.Format(t, pipeline.I420, 320, 240, 30)
	for _, mtu := range []int{576, 1500, 9000} {
		room := mtu - 48 - 12
		for _, n := range []int{1, 2, room - 1, room, room + 1, 2*(room-2) + 1, 2*(room-2) + 2, 3 * room} {
			u := &units{long: n%2 == 0}
			u.list = [][]byte{{0x67, 1, 2}, {0x68, 7}, append([]byte{0x65}, bytes.Repeat([]byte{0x80 | byte(n)}, n-1)...), {0x65, 0x11}}
			p := testPacking(t, Stream{Payload: H264, H264: u, MTU: mtu, Start: testStart(), Checksum: true}, f)
			wire := packets(t, p, rtptest.Frame(f, 0))
			if got := unpacked(t, wire, mtu); !bytes.Equal(got, byteStream(u.list)) {
				t.Errorf("mtu %d, unit of %d bytes: % .20x of %d bytes, not %d", mtu, n, got, len(got), len(byteStream(u.list)))
			}
			if most := 3 + (n+room-3)/(room-2); len(wire) > most {
				t.Errorf("mtu %d, unit of %d bytes: %d packets, %d do", mtu, n, len(wire), most)
			}
			if sum, all := p.train.Checksum(), slices.Concat(u.list...); sum.CRC != CRC(all) || int(sum.Bytes) != len(all) {
				t.Errorf("checksum %+v of %d bytes, want %#x", sum, len(all), CRC(all))
			}
		}
	}
}

// recorder is an encoder that keeps the last access unit.
type recorder struct {
	*codec.H264
	unit []byte
}

func (r *recorder) Encode(dst []byte, f *pipeline.Frame, key bool) ([]byte, error) {
	b, err := r.H264.Encode(dst, f, key)
	r.unit = bytes.Clone(b)
	return b, err
}

func testH264(t testing.TB, f pipeline.Format, bitrate int) *recorder {
	t.Helper()
	h, err := codec.NewH264(f, bitrate)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return &recorder{H264: h}
}

// TestH264Frames packs the output of openh264, at a bit rate at which units must be split.
func TestH264Frames(t *testing.T) {
	f := rtptest.Format(t, pipeline.I420, 640, 360, 30)
	e := testH264(t, f, 4_000_000)
	p := testPacking(t, Stream{Payload: H264, H264: e, Start: testStart(), CaptureTime: true}, f)
	for n := range 10 {
		wire := packets(t, p, rtptest.Frame(f, n))
		if got := unpacked(t, wire, 1500); !bytes.Equal(got, e.unit) || len(wire) < 3 {
			t.Errorf("frame %d: %d bytes in %d packets, %d encoded", n, len(got), len(wire), len(e.unit))
		}
	}
}

// TestH264KeyFrames checks that a key frame is made every two seconds, on request but not too often, and after a frame
// that failed.
func TestH264KeyFrames(t *testing.T) {
	f := rtptest.Format(t, pipeline.I420, 320, 240, 30)
	u := &units{list: [][]byte{{0x65, 1}}}
	p := testPacking(t, Stream{Payload: H264, H264: u, Start: testStart()}, f)
	frame := rtptest.Frame(f, 0)
	for n := range 200 {
		switch n {
		case 3, 5, 80: // the first two requests cause one key frame, 15 frames after frame 0; the second one comes too soon for another
			p.Packetizer.(*h264Packetizer).KeyFrame()
		case 100:
			u.err = errors.New("out of order")
			if err := p.Packetize(p.train, frame); !errors.Is(err, ErrH264) || !errors.Is(err, u.err) {
				t.Errorf("error %v", err)
			}
			u.err = nil
			continue
		}
		packets(t, p, frame)
	}
	var got []int
	for n, key := range u.keys {
		if key {
			got = append(got, n)
		}
	}
	if want := []int{0, 15, 75, 90, 101, 161}; !slices.Equal(got, want) {
		t.Errorf("key frames %v, want %v", got, want)
	}
}

func TestH264Refused(t *testing.T) {
	f := rtptest.Format(t, pipeline.I420, 32, 32, 30)
	many := slices.Repeat([][]byte{{0x41, 1}}, 200)
	for name, tt := range map[string]struct {
		list [][]byte
		want string
	}{
		"nothing":        {nil, "without a unit"},
		"empty units":    {[][]byte{{}, {0}}, "without a unit"},
		"too many units": {many, "packets"},
		"outgrown":       {[][]byte{make([]byte, 20_000)}, "outgrew"},
	} {
		p := testPacking(t, Stream{Payload: H264, H264: &units{list: tt.list}, Start: testStart()}, f)
		if err := p.Packetize(p.train, rtptest.Frame(f, 0)); !errors.Is(err, ErrH264) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewPacketizer(Stream{Payload: H264}, f); !errors.Is(err, ErrConfig) {
		t.Errorf("no encoder: %v", err)
	}
	if err := (Stream{Payload: H264}).CheckFormat(rtptest.Format(t, pipeline.UYVY, 32, 32, 30)); !errors.Is(err, ErrFormat) {
		t.Errorf("UYVY: %v", err)
	}
}

func TestH264SDP(t *testing.T) {
	f := rtptest.Format(t, pipeline.I420, 320, 240, 25)
	to := netip.MustParseAddrPort("127.0.0.1:5004")
	b, err := Describe(Stream{Payload: H264, H264: &units{}, Start: testStart()}, f, Path{From: to.Addr(), To: to})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"m=video 5004 RTP/AVP 98\r\n", "a=rtpmap:98 H264/90000\r\n", "a=framerate:25\r\n",
		"a=fmtp:98 packetization-mode=1;profile-level-id=42C01E;sprop-parameter-sets=Z0LAHgE=,aAI=\r\n",
	} {
		if !bytes.Contains(b, []byte(want)) {
			t.Errorf("no %q in\n%s", want, b)
		}
	}
	m, err := ParseSDP(b)
	if err != nil || len(m) != 1 || m[0].Payload != H264 || m[0].PayloadType != 98 || m[0].Rate != f.Rate {
		t.Errorf("parsed %+v, %v", m, err)
	}
	other := bytes.Replace(b, []byte("mode=1"), []byte("mode=2"), 1)
	if _, err := ParseSDP(other); !errors.Is(err, ErrSDP) || !strings.Contains(err.Error(), "packetization-mode") {
		t.Errorf("interleaved: %v", err)
	}
}

// naive splits a byte stream according to the text of H.264 §B.1.
func naive(stream []byte) (list []string) {
	if !bytes.Contains(stream, []byte{0, 0, 1}) {
		return nil
	}
	for i, unit := range strings.Split(string(stream), "\x00\x00\x01") {
		if unit = strings.TrimRight(unit, "\x00"); i > 0 && unit != "" {
			list = append(list, unit)
		}
	}
	return list
}

func FuzzUnits(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x01\x67\x01\x00\x00\x01\x68\x00\x00\x03\x00\x00\x00\x00\x01\x65\x80"))
	f.Add([]byte("\x00\x00\x01\x00\x00\x01\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var got []string
		for unit, rest := NextUnit(b); unit != nil; unit, rest = NextUnit(rest) {
			got = append(got, string(unit))
		}
		if want := naive(b); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// FuzzH264Payload compares the parsing of a payload with pion's.
func FuzzH264Payload(f *testing.F) {
	f.Add([]byte{0x65, 0x80, 1})
	f.Add([]byte{0x78, 0, 2, 0x67, 1, 0, 1, 0x68})
	f.Add([]byte{0x7c, 0x85, 0x80})
	f.Add([]byte{0x7c, 0x45, 0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, ok := ParseH264(b)
		p.Begins()
		if !ok || !p.Start || !p.End {
			return
		}
		var list [][]byte
		for data := p.Data; p.Many && len(data) > 0; {
			var unit []byte
			unit, data, _ = p.Cut(data)
			list = append(list, unit)
		}
		if !p.Many {
			list = [][]byte{p.Data}
		}
		if got, err := (&codecs.H264Packet{}).Unmarshal(b); err != nil || !bytes.Equal(got, byteStream(list)) {
			t.Errorf("% x: pion %v % x, here % x", b, err, got, list)
		}
	})
}

func BenchmarkH264Packetize(b *testing.B) {
	f := rtptest.Format(b, pipeline.I420, 1920, 1080, 30)
	for _, n := range []int{26_000, 260_000} {
		b.Run(fmt.Sprint(n, " bytes"), func(b *testing.B) {
			u := &units{list: [][]byte{bytes.Repeat([]byte{0x41}, n)}}
			p := testPacking(b, Stream{Payload: H264, H264: u, Start: testStart()}, f)
			frame := rtptest.Frame(f, 0)
			b.ReportAllocs()
			for b.Loop() {
				u.keys = u.keys[:0]
				if err := p.Packetize(p.train, frame); err != nil {
					b.Fatal(err)
				}
			}
			rtptest.PerPacket(b, p.train.Len())
		})
	}
}
