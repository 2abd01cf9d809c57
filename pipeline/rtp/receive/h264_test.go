// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"bytes"
	"os/exec"
	"slices"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestH264Beginnings: a key frame whose parameter sets are lost is damaged, whether or not the packet before them came.
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

// TestH264Pieces puts payloads together that other senders make: several units in one packet, a picture without parameter sets, parts
// that do not follow one another.
func TestH264Pieces(t *testing.T) {
	for name, tt := range map[string]struct {
		payloads [][]byte
		want     string // of the second access unit; empty: it is not whole
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
		d.begin(&a, 0, true)
		if err := d.add(&a, 9, []byte{0x41, 0x80}, true); err != nil || !d.whole(&a) {
			t.Fatalf("%s: the first unit: %v", name, err)
		}
		d.begin(&a, 3000, false)
		for i, p := range slices.Backward(tt.payloads) {
			if err := d.add(&a, uint64(10+i), p, i == len(tt.payloads)-1); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		got := ""
		if d.whole(&a) {
			b, _, _ := d.frame(&a)
			got = string(b)
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestH264Recovers loses a packet, and has ffmpeg decode what is left: pictures behind the loss are wrong, and from the next key
// frame on they are right.
func TestH264Recovers(t *testing.T) {
	const lossy, key, frames = 5, 20, 26 // key frames come every 2 s
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
	var db []float64 // of the last pictures: what is lost may have a picture in its place, or none
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
