package rtp

import (
	"bytes"
	"testing"

	pion "github.com/pion/rtp"

	"github.com/tegracast/tegracast/pipeline"
)

// TestCaptureTime reads the header extension with pion/rtp, in raw packets of both layouts and in JPEG, and a receiver
// takes them for the same pictures.
func TestCaptureTime(t *testing.T) {
	for name, payload := range map[string]Payload{"raw": Raw, "packet-ready": Raw, "jpeg": JPEG} {
		pixel := pipeline.UYVY
		if payload == JPEG {
			pixel = pipeline.I420
		}
		plain := testFormat(t, pixel, 640, 48, 30)
		c := Config{Payload: payload, CaptureTime: true, Start: testStart()}
		f, frame := plain, testFrame(plain, 0)
		if name == "packet-ready" {
			var ok bool
			if f, ok = c.PacketReady(plain); !ok {
				t.Fatal("there is no packet-ready layout")
			}
			frame = packReady(frame, f)
		}
		wire := packets(t, testSink(t, c, f), frame)
		session := newSession(Media{Payload: payload, PayloadType: payload.payloadType(), Width: 640, Height: 48}, nil)
		var got []byte
		session.onFrame = func(b []byte, _ FrameInfo) { got = bytes.Clone(b) }
		for i, b := range wire {
			var p pion.Packet
			if err := p.Unmarshal(b); err != nil {
				t.Fatal(err)
			}
			want := ntpTime(frame.Times.ExposureStart)
			ext := p.GetExtension(1)
			if p.ExtensionProfile != 0xbede || len(ext) != 8 || be.Uint64(ext) != want {
				t.Fatalf("%s: packet %d: profile %#x, extension % x, want %x", name, i, p.ExtensionProfile, ext, want)
			}
			if len(b)+ipUDPHeader > defaultMTU {
				t.Fatalf("%s: packet %d has %d bytes", name, i, len(b))
			}
			session.packet(b, frame.Times.ExposureStart)
		}
		if payload == Raw && !bytes.Equal(got, lines(testFrame(plain, 0))) || len(got) == 0 {
			t.Errorf("%s: another picture arrived", name)
		}
	}
}
