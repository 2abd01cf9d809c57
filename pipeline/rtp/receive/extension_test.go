// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"bytes"
	"encoding/binary"
	"testing"

	pion "github.com/pion/rtp"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestCaptureTime reads the header extension with pion/rtp, in raw packets of both layouts and in JPEG packets, and
// checks that a receiver gets the same pictures.
func TestCaptureTime(t *testing.T) {
	for name, payload := range map[string]rtp.Payload{"raw": rtp.Raw, "packet-ready": rtp.Raw, "jpeg": rtp.JPEG} {
		pixel := pipeline.UYVY
		if payload == rtp.JPEG {
			pixel = pipeline.I420
		}
		plain := rtptest.Format(t, pixel, 640, 48, 30)
		c := rtp.Stream{Payload: payload, CaptureTime: true, Start: testStart()}
		f, frame := plain, rtptest.Frame(plain, 0)
		if name == "packet-ready" {
			var ok bool
			if f, ok = c.PacketReady(plain); !ok {
				t.Fatal("there is no packet-ready layout")
			}
			frame = rtptest.PackReady(frame, f)
		}
		wire := packets(t, testSender(t, c, f), frame)
		stream := testStream(t, rtp.Media{Payload: payload, PayloadType: payload.Type(), Width: 640, Height: 48}, nil)
		var got []byte
		stream.onFrame = func(b []byte, _ FrameInfo) { got = bytes.Clone(b) }
		for i, b := range wire {
			var p pion.Packet
			if err := p.Unmarshal(b); err != nil {
				t.Fatal(err)
			}
			want := rtp.NTP(frame.Times.ExposureStart)
			ext := p.GetExtension(1)
			if p.ExtensionProfile != 0xbede || len(ext) != 8 || binary.BigEndian.Uint64(ext) != want {
				t.Fatalf("%s: packet %d: profile %#x, extension % x, want %x", name, i, p.ExtensionProfile, ext, want)
			}
			if len(b)+48 > 1500 {
				t.Fatalf("%s: packet %d has %d bytes", name, i, len(b))
			}
			stream.packet(b, frame.Times.ExposureStart)
		}
		if payload == rtp.Raw && !bytes.Equal(got, rtptest.Lines(rtptest.Frame(plain, 0))) || len(got) == 0 {
			t.Errorf("%s: another picture arrived", name)
		}
	}
}
