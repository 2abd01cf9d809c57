// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// arrival is a packet of a stream and its arrival time.
type arrival struct {
	at     time.Time
	packet []byte
}

// jittered returns the packets of frames, sent evenly at 30 frames per second, each delayed by up to jitter.
func jittered(frames [][][]byte, begin time.Time, seed uint64, jitter time.Duration) []arrival {
	random := rand.New(rand.NewPCG(seed, 1))
	var all []arrival
	for n, wire := range frames {
		for i, p := range wire {
			at := begin.Add(time.Second / 30 * time.Duration(n)).Add(time.Second / 30 * time.Duration(i) / time.Duration(len(wire)))
			all = append(all, arrival{at: at.Add(time.Duration(random.Int64N(int64(jitter)))), packet: p})
		}
	}
	slices.SortStableFunc(all, func(a, b arrival) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	return all
}

// wires returns the packets of all frames of x.
func wires(x *feed) (all [][][]byte) {
	for _, f := range x.frames {
		all = append(all, packets(x.t, x.sink, f))
	}
	return all
}

// TestWhatIsUnderWayAtTheEndsIsNotLost receives a part of a stream whose packets overtake each other by up to 20 ms.
func TestWhatIsUnderWayAtTheEndsIsNotLost(t *testing.T) {
	for p, f := range map[rtp.Payload]pipeline.Format{
		rtp.Raw:  rtptest.Format(t, pipeline.UYVY, 320, 100, 30),
		rtp.JPEG: rtptest.Format(t, pipeline.I420, 640, 480, 30),
	} {
		x := newFeedOf(t, p, f, 12)
		frames := wires(x)
		if len(frames[0]) < 50 {
			t.Fatalf("%v: %d packets a frame", p, len(frames[0]))
		}
		for seed := range uint64(200) {
			x.s = testStream(t, x.media, nil)
			begin := x.now.Add(time.Duration(70+seed%50) * time.Millisecond)
			end := begin.Add(time.Duration(200+seed%37) * time.Millisecond)
			beyond := 0
			for _, a := range jittered(frames, x.now, seed, 20*time.Millisecond) {
				if a.at.Before(begin) {
					continue
				}
				if a.at.After(end) {
					x.s.stop()
				}
				before := x.s.stats.Packets
				if x.s.packet(a.packet, a.at); x.s.stats.Packets == before {
					beyond++
				}
			}
			x.s.finish()
			st := x.s.snapshot()
			if st.Lost+st.Damaged+st.Malformed+st.Foreign+st.Duplicates+st.Late != 0 || st.Frames < 4 || x.s.awaits() || beyond == 0 {
				t.Fatalf("%v, seed %d, beyond %d: %+v", p, seed, beyond, st)
			}
		}
	}
}

// TestLossIsCountedInSpiteOfJitter checks that exactly the losses between both ends of the reception are counted.
func TestLossIsCountedInSpiteOfJitter(t *testing.T) {
	x := newFeed(t, rtp.Raw, 12)
	frames := wires(x)
	for seed := range uint64(20) {
		x.s = testStream(t, x.media, nil)
		all, gone := jittered(frames, x.now, seed, 20*time.Millisecond), 0
		for i, a := range all {
			if middle := a.at.Sub(x.now); middle > 150*time.Millisecond && middle < 250*time.Millisecond && i%10 == 0 {
				gone++
				continue
			}
			if a.at.Sub(x.now) > 350*time.Millisecond && !x.s.stopped {
				x.s.stop()
			}
			x.s.packet(a.packet, a.at)
		}
		if st := x.s.snapshot(); st.Lost != uint64(gone) || gone == 0 {
			t.Fatalf("seed %d: %d gone, %+v", seed, gone, st)
		}
	}
}

// TestNothingCountsBeyondTheEnd checks that after the end only packets count that were sent before the last one
// received in time.
func TestNothingCountsBeyondTheEnd(t *testing.T) {
	x := newFeed(t, rtp.Raw, 3)
	x.send(0, nil)
	wire := packets(t, x.sink, x.frames[1])
	for i, b := range wire[:10] {
		if i != 3 && i != 5 {
			x.s.packet(b, x.now)
		}
	}
	x.s.stop()
	if !x.s.awaits() {
		t.Fatal("two packets are under way, and nothing is awaited")
	}
	stranger := slices.Clone(wire[10])
	stranger[8]++
	for _, b := range [][]byte{wire[3], wire[3], wire[2], wire[10], stranger, wire[11][:5], {1, 2, 3}, wire[5]} {
		x.s.packet(b, x.now)
	}
	x.s.malformed()
	if x.s.awaits() {
		t.Error("all that was sent before the end has come, and something is awaited")
	}
	if packets := x.s.stats.Packets; packets != uint64(len(wire)+10) {
		t.Errorf("%d packets, want %d", packets, len(wire)+10)
	}
	x.expect(Stats{Frames: 1, Matched: 1, Reordered: 2})
}

// TestReceiverAwaitsWhatWasOvertaken checks that a packet that was sent before the end, but arrives shortly after it,
// does not count as lost.
func TestReceiverAwaitsWhatWasOvertaken(t *testing.T) {
	port := rtptest.EvenPorts(t, 1)[0]
	x := newFeed(t, rtp.Raw, 2)
	x.media.Address, x.media.Port, x.media.RTCPPort = netip.MustParseAddr("127.0.0.1"), port, port+1
	r, err := New(Config{Media: x.media, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	send := func(wire ...[]byte) {
		for _, b := range wire {
			if _, err := c.Write(b); err != nil {
				t.Error(err)
			}
		}
	}
	first := packets(t, x.sink, x.frames[0])
	second := packets(t, x.sink, x.frames[1])
	send(first[:5]...)
	send(first[6:]...)
	send(second[:3]...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sent := time.AfterFunc(20*time.Millisecond, func() { send(second[3:]...); send(first[5]) })
	defer sent.Stop()
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if st := r.Stats(); st.Packets != uint64(len(first)+3) || st.Lost+st.Damaged != 0 || st.Frames != 1 || st.Reordered != 1 {
		t.Errorf("%+v", st)
	}
}
