// SPDX-License-Identifier: Apache-2.0

package send

import (
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestLinkFaults: while an interface is down or too narrow frames are cut and counted, and nothing stays in flight;
// afterwards the stream is whole again by itself.
func TestLinkFaults(t *testing.T) {
	plain := rtptest.Format(t, pipeline.UYVY, 1920, 64, 30)
	c := Config{Destinations: []string{"10.9.0.2:5004"}, Pacing: PaceBurst}
	ready, _ := c.PacketReady(plain)
	for name, f := range map[string]pipeline.Format{"gather": plain, "packet-ready": ready} {
		t.Run(name, func(t *testing.T) {
			rtptest.InNamespace(t, func() {
				rtptest.TransmitOnly(t)
				s := testSink(t, c, f)
				frames := 0
				play := func(what string, wantWhole bool) {
					t.Helper()
					before := s.Stats().Destinations[0]
					frame := rtptest.Frame(plain, frames)
					if f.PacketPitch > 0 {
						frame = rtptest.PackReady(frame, f)
					}
					frames++
					send(t, s, frame)
					st := s.Stats().Destinations[0]
					if whole := st.Frames > before.Frames; whole != wantWhole {
						t.Errorf("%s: whole %v, want %v: %+v", what, whole, wantWhole, st)
					}
					if st.Frames+st.Cut != uint64(frames) || st.Packets+st.Dropped != uint64(frames*s.trains[0].Len()) {
						t.Errorf("%s: the books do not close: %+v", what, st)
					}
				}
				play("at first", true)
				rtptest.IP(t, "link", "set", "x", "down")
				play("interface down", false)
				rtptest.IP(t, "link", "set", "x", "up")
				rtptest.Neighbour(t)
				play("interface up again", true)
				rtptest.IP(t, "link", "set", "x", "mtu", "1000")
				play("MTU too small", false)
				if last := s.Stats().Destinations[0].LastError; !strings.Contains(last, "lower mtu") {
					t.Errorf("it says %q", last)
				}
				rtptest.IP(t, "link", "set", "x", "mtu", "1500")
				play("MTU large again", true)
				for deadline := time.Now().Add(5 * time.Second); s.trains[0].inFlight.Load() > 0; time.Sleep(time.Millisecond) {
					s.sender.reap()
					if time.Now().After(deadline) {
						t.Fatalf("%d calls are in flight for ever", s.trains[0].inFlight.Load())
					}
				}
			})
		})
	}
}

// TestZeroCopyHoldsTheFrame: where the kernel sends from the frame's own memory, the way stays, and the frame is held
// exactly until the kernel has let go.
func TestZeroCopyHoldsTheFrame(t *testing.T) {
	rtptest.InNamespace(t, func() {
		rtptest.TransmitOnly(t)
		plain := rtptest.Format(t, pipeline.UYVY, 1920, 64, 30)
		c := Config{Destinations: []string{"10.9.0.2:5004"}, Pacing: PaceBurst}
		f, _ := c.PacketReady(plain)
		s := testSink(t, c, f)
		for n := range 20 {
			send(t, s, rtptest.PackReady(rtptest.Frame(plain, n), f))
		}
		for deadline := time.Now().Add(5 * time.Second); s.trains[0].inFlight.Load() > 0; time.Sleep(time.Millisecond) {
			s.sender.reap()
			if time.Now().After(deadline) {
				t.Fatalf("%d calls are in flight for ever", s.trains[0].inFlight.Load())
			}
		}
		d := (*s.sender.dests.Load())[0]
		if d.way.kind != ZeroCopy || d.way.zero.next != 20*192/16 {
			t.Errorf("sends by %v, %d calls, want %v, %d", d.way.kind, d.way.zero.next, ZeroCopy, 20*192/16)
		}
	})
}
