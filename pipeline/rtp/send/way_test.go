// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bytes"
	"cmp"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

// TestEveryWaySendsTheSameBytes compares the received packets with those of the train, for changing frames.
func TestEveryWaySendsTheSameBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("SHORT: it takes several seconds: make test runs it")
	}
	type geometry struct {
		width, height, mtu int
		ready              bool
		payload            rtp.Payload
		pixel              pipeline.PixelFormat
	}
	for _, g := range []geometry{
		{width: 1920, height: 20},
		{width: 962, height: 21}, // the last packet of a line is shorter
		{width: 2, height: 3},
		{width: 500, height: 40, mtu: 600},
		{width: 1920, height: 9, mtu: 9000}, // few packets fill a datagram
		{width: 320, height: 180, payload: rtp.JPEG},
		{width: 1920, height: 20, ready: true},
		{width: 500, height: 40, ready: true},
		{width: 1920, height: 9, pixel: pipeline.UYVP},
		{width: 1920, height: 9, pixel: pipeline.UYVP, ready: true},
		{width: 641, height: 9, pixel: pipeline.RGB24},
		{width: 640, height: 9, pixel: pipeline.RGB24, ready: true},
	} {
		for e := Automatic; e <= Single; e++ {
			t.Run(fmt.Sprintf("%v %dx%d/%d/%v/%v/%v", g.pixel, g.width, g.height, g.mtu, g.payload, g.ready, e), func(t *testing.T) {
				conn, addr := listener(t)
				c := Config{Stream: rtp.Stream{Payload: g.payload, MTU: g.mtu, Start: testStart()}, Destinations: []string{addr}, Pacing: PaceBurst, Way: e}
				pixel := cmp.Or(g.pixel, pipeline.UYVY)
				if g.payload == rtp.JPEG {
					pixel = pipeline.I420
				}
				f := rtptest.Format(t, pixel, g.width, g.height, 30)
				plain := testSink(t, Config{Stream: rtp.Stream{Payload: g.payload, MTU: g.mtu, Start: testStart()}}, f)
				if g.ready {
					var ok bool
					if f, ok = c.PacketReady(f); !ok {
						t.Fatal("there is no packet-ready layout")
					}
				}
				s := testSink(t, c, f)
				for n := range 3 {
					frame := rtptest.Frame(plain.format, n)
					want := packets(t, plain, frame)
					if g.ready {
						frame = rtptest.PackReady(frame, f)
						if len(frame.Bytes) != f.Size() {
							t.Fatalf("%d bytes of packet-ready memory, the format says %d", len(frame.Bytes), f.Size())
						}
					}
					send(t, s, frame)
					s.sender.reap()
					got := read(t, conn, len(want))
					if len(got) != len(want) {
						t.Fatalf("frame %d: %d packets, want %d", n, len(got), len(want))
					}
					for i := range got {
						if !bytes.Equal(got[i], want[i]) {
							t.Fatalf("frame %d: packet %d of %d differs", n, i, len(got))
						}
					}
				}
				if n := s.trains[0].inFlight.Load(); n != 0 {
					t.Errorf("%d calls are in flight for ever", n)
				}
				d := (*s.sender.dests.Load())[0]
				want := e
				if e == Automatic || e == ZeroCopy && g.ready { // the loopback copies, so zero-copy is given up
					want = Segments
				}
				if d.way.kind != want {
					t.Errorf("sends by %v, want %v", d.way.kind, want)
				}
			})
		}
	}
}

// brokenSender accepts a few packets, then fails once.
type brokenSender struct {
	sender
	after int
	errno unix.Errno
	calls int
}

func (b *brokenSender) send(fd int, t *train, from, to int) (packets, bytes int, errno unix.Errno) {
	if b.calls++; b.calls == b.after {
		return 0, 0, b.errno
	}
	return b.sender.send(fd, t, from, to)
}

// TestWaysFallBackWithoutLoss checks that no packet is lost when a way fails in the middle of a frame.
func TestWaysFallBackWithoutLoss(t *testing.T) {
	f := rtptest.Format(t, pipeline.UYVY, 320, 240, 30)
	for errno, after := range map[unix.Errno]Way{
		unix.EIO: Messages, unix.EINVAL: Messages, unix.EOPNOTSUPP: Messages, unix.ENOBUFS: Segments, unix.EMSGSIZE: Segments,
	} {
		conn, addr := listener(t)
		s := testSink(t, Config{Stream: rtp.Stream{Start: testStart()}, Destinations: []string{addr}, Pacing: PaceBurst}, f)
		d := (*s.sender.dests.Load())[0]
		d.way.best = &brokenSender{sender: d.way.best, after: 2, errno: errno}
		want := packets(t, s, rtptest.Frame(f, 0))
		if sendTrain(s, s.trains[0]) {
			t.Errorf("%v: the frame failed", errno)
		}
		got := read(t, conn, len(want))
		if len(got) != len(want) {
			t.Fatalf("%v: %d packets, want %d", errno, len(got), len(want))
		}
		for i := range got {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("%v: packet %d differs", errno, i)
			}
		}
		if d.way.kind != after {
			t.Errorf("%v: sends by %v afterwards, want %v", errno, d.way.kind, after)
		}
		if st := s.Stats().Destinations[0]; st.Frames != 1 || st.Packets != uint64(len(want)) || st.Bytes != uint64(s.trains[0].Bytes()) {
			t.Errorf("%v: %+v", errno, st)
		}
	}
}

// TestTinySocketBuffer checks that without room for a burst, frames are either sent or cut and counted, and nothing
// hangs.
func TestTinySocketBuffer(t *testing.T) {
	conn, addr := listener(t)
	f := rtptest.Format(t, pipeline.UYVY, 1920, 100, 30)
	s := testSink(t, Config{Destinations: []string{addr}, Pacing: PaceBurst}, f)
	if _, err := udp.SetBuffer((*s.sender.dests.Load())[0].socket.fd, unix.SO_SNDBUF, 1); err != nil {
		t.Fatal(err)
	}
	send(t, s, rtptest.Frame(f, 0))
	st := s.Stats().Destinations[0]
	if got := len(read(t, conn, int(st.Packets))); st.Packets+st.Dropped != 300 || uint64(got) != st.Packets || st.Frames+st.Cut != 1 {
		t.Errorf("%d packets arrived: %+v", got, st)
	}
}
