// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// discipline gives the interface of TransmitOnly another queueing discipline.
func discipline(by string) error {
	args := append([]string{"qdisc", "replace", "dev", "x", "root"}, strings.Fields(by)...)
	if out, err := exec.Command("tc", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("tc %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// finished waits until the kernel has finished with the first train.
func finished(t *testing.T, s *Sink, what string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); s.trains[0].inFlight.Load() > 0; time.Sleep(time.Millisecond) {
		s.sender.reap()
		if time.Now().After(deadline) {
			t.Fatalf("%s: %d messages are in flight for ever", what, s.trains[0].inFlight.Load())
		}
	}
}

// TestLinkFaults checks that frames are cut and counted, and that nothing stays in flight, while an interface is down
// or too slow, and that the stream recovers on its own afterwards.
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
				finished(t, s, "at last")
			})
		})
	}
}

// TestZeroCopyHoldsTheFrame checks that zero-copy stays in use where the kernel really sends from the frame's memory,
// and that the frame is held exactly until the kernel has finished with it.
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
		finished(t, s, "20 frames")
		d := (*s.sender.dests.Load())[0]
		const want = 19 * 5 // messages of 50, 14, 50, 50 and 28 packets; the first frame only shows that packets leave
		if d.way.kind != ZeroCopy || d.way.zero.next != want {
			t.Errorf("sends by %v, %d messages, want %v, %d", d.way.kind, d.way.zero.next, ZeroCopy, want)
		}
	})
}

// TestZeroCopyAfterDroppedMessages checks that no frame is held for ever after a queue below the socket has dropped
// messages. The kernel counts them, but sendmmsg reports an error, or nothing if it took an earlier message.
func TestZeroCopyAfterDroppedMessages(t *testing.T) {
	rtptest.InNamespace(t, func() {
		rtptest.TransmitOnly(t)
		plain := rtptest.Format(t, pipeline.UYVY, 1920, 64, 30)
		c := Config{Destinations: []string{"10.9.0.2:5004"}, Pacing: PaceBurst, Burst: 50}
		f, _ := c.PacketReady(plain)
		s := testSink(t, c, f)
		d, train := (*s.sender.dests.Load())[0], s.trains[0]
		const free, full = "pfifo limit 1000", "pfifo limit 0"
		const narrow, roomy = "tbf rate 8kbit burst 2700 limit 100000", "tbf rate 8kbit burst 2700 limit 1000000"
		if err := discipline(narrow); err != nil {
			t.Skipf("NEEDS tc, with tbf: %v", err)
		}
		queue := func(by string) {
			if err := discipline(by); err != nil {
				t.Fatal(err)
			}
		}
		for n, by := range []string{free, free, full, free, free, full, full, free, free} {
			queue(by)
			before := d.counters.errors.Load()
			send(t, s, rtptest.PackReady(rtptest.Frame(plain, n), f))
			if dropped := d.counters.errors.Load() > before; dropped != (by == full) {
				t.Errorf("frame %d, %s: messages dropped: %v", n, by, dropped)
			}
			finished(t, s, by)
		}
		queue(narrow)
		zero := d.way.zero
		part, _, errno := zero.send(d.socket.fd, train, 0, train.Len())
		if part == 0 || part == train.Len() || errno != 0 {
			t.Fatalf("%d of %d packets: %v", part, train.Len(), errno)
		}
		queue(roomy) // so the next call succeeds, and the error of the dropped message is never reported
		rest, _, errno := zero.send(d.socket.fd, train, part, train.Len())
		s.sender.reap()
		if held, want := int(train.inFlight.Load()), (part+rest+c.Burst-1)/c.Burst; errno != 0 || held != want {
			t.Errorf("%d and %d packets, %v; %d messages are in flight, want %d", part, rest, errno, held, want)
		}
		queue(free)
		finished(t, s, "a part of a call")
		if d.way.kind != ZeroCopy {
			t.Errorf("sends by %v", d.way.kind)
		}
	})
}

// TestAnOutputEndsWhileTheKernelHoldsItsFrames checks that an output ends in time even if a link that drains slowly (a
// shaper, flow control) holds frames for half a minute.
func TestAnOutputEndsWhileTheKernelHoldsItsFrames(t *testing.T) {
	rtptest.InNamespace(t, func() {
		rtptest.TransmitOnly(t)
		plain := rtptest.Format(t, pipeline.UYVY, 1920, 64, 30)
		c := Config{Destinations: []string{"10.9.0.2:5004"}, Pacing: PaceBurst}
		f, _ := c.PacketReady(plain)
		s := testSink(t, c, f)
		src := rtptest.NewSource(t, f, 0)
		for n := range src.Fill {
			src.Fill[n] = rtptest.PackReady(rtptest.Frame(plain, n), f)
		}
		close(src.Ready)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan pipeline.OutputStats, 1)
		go func() { ended <- rtptest.Run(t, ctx, src, s) }()
		until := func(what string, reached func() bool) {
			for deadline := time.Now().Add(time.Minute); !reached(); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Errorf("never: %s", what)
					return
				}
			}
		}
		until("frames leave", func() bool { return s.Stats().Frames > 3 })
		if err := discipline("tbf rate 64kbit burst 4000 limit 100000000"); err != nil {
			t.Skipf("NEEDS tc, with tbf: %v", err)
		}
		until("the kernel holds all frames", func() bool {
			return !slices.ContainsFunc(s.trains, func(t *train) bool { return t.inFlight.Load() == 0 })
		})
		begin := time.Now()
		cancel()
		books := <-ended
		if took := time.Since(begin); took > 15*time.Second { // 2 s by design; the kernel would need 30
			t.Errorf("it took %v", took)
		}
		if books.Captured != books.Delivered+books.Drops() {
			t.Errorf("%+v", books)
		}
	})
}

// TestAHostThatIsAway checks that a host in this network that does not answer is logged once, holds no frames and does
// not affect the others. When it appears it gets whole frames.
func TestAHostThatIsAway(t *testing.T) {
	plain := rtptest.Format(t, pipeline.UYVY, 1920, 64, 50)
	c := Config{Destinations: []string{"10.9.0.3:5004", "10.9.0.2:5004"}}
	ready, _ := c.PacketReady(plain)
	for name, f := range map[string]pipeline.Format{"gather": plain, "packet-ready": ready} {
		t.Run(name, func(t *testing.T) {
			rtptest.InNamespace(t, func() {
				rtptest.IP(t, "link", "set", "lo", "up") // the kernel's own ICMP answers use lo
				rtptest.IP(t, "link", "add", "x", "type", "veth", "peer", "name", "y")
				rtptest.IP(t, "address", "add", "10.9.0.1/24", "dev", "x")
				rtptest.IP(t, "link", "set", "y", "up")
				rtptest.IP(t, "link", "set", "x", "up")
				rtptest.Neighbour(t)
				for file, text := range map[string]string{"retrans_time_ms": "100", "mcast_solicit": "2"} {
					if err := os.WriteFile("/proc/sys/net/ipv4/neigh/x/"+file, []byte(text), 0o644); err != nil {
						t.Error(err)
						return
					}
				}
				var log bytes.Buffer
				cfg := c
				cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
				s, err := New(cfg, f)
				if err != nil {
					t.Error(err)
					return
				}
				defer func() { _ = s.Close() }()
				frame := rtptest.Frame(plain, 0)
				if f.PacketPitch > 0 {
					frame = rtptest.PackReady(frame, f)
				}
				frames, told := 0, false
				play := func() DestinationStats {
					if send(t, s, frame) {
						t.Error("failed, although one destination took everything")
					}
					frames++
					st := s.Stats().Destinations
					if st[1].Frames != uint64(frames) || st[1].Cut != 0 {
						t.Errorf("after %d frames the other one: %+v", frames, st[1])
					}
					return st[0]
				}
				// The kernel reports this by ICMP, and sends at most a thousand ICMP messages per second for the whole
				// machine; other tests may use them up.
				began, gone := time.Now(), play()
				for ; frames < 600 && (gone.Cut < 30 || !told) && !t.Failed(); gone = play() {
					told = told || strings.Contains(gone.LastError, "no host answers")
				}
				if gone.Cut < 30 || !told {
					t.Errorf("after %d frames, away: %+v", frames, gone)
				}
				if n := strings.Count(log.String(), "destination loses frames"); n < 1 || n > 1+int(time.Since(began)/logEvery) {
					t.Errorf("the log tells %d times:\n%s", n, &log)
				}
				if z := (*s.sender.dests.Load())[0].way.zero; z != nil && z.next != 0 {
					t.Errorf("%d messages for an unknown address hold frames", z.next)
				}
				rtptest.IP(t, "neigh", "replace", "10.9.0.3", "lladdr", "02:00:00:00:00:03", "dev", "x", "nud", "permanent")
				whole := 0
				for came := frames; frames < came+200 && whole < 5 && !t.Failed(); { // an answer may still be in transit
					before := gone
					if gone = play(); gone.Frames == before.Frames+1 && gone.LastError == "" {
						whole++
					} else {
						whole = 0
					}
				}
				if whole < 5 {
					t.Errorf("it came: %+v", gone)
				}
			})
		})
	}
}

// TestReportsDoNotWait checks that sending RTCP does not hold up the thread while the network accepts none, here
// because the kernel waits for the neighbour's address.
func TestReportsDoNotWait(t *testing.T) {
	rtptest.InNamespace(t, func() {
		rtptest.IP(t, "link", "add", "x", "type", "veth", "peer", "name", "y")
		rtptest.IP(t, "address", "add", "10.9.0.1/24", "dev", "x")
		rtptest.IP(t, "link", "set", "y", "up")
		rtptest.IP(t, "link", "set", "x", "up")
		if err := os.WriteFile("/proc/sys/net/ipv4/neigh/x/retrans_time_ms", []byte("20000"), 0o644); err != nil {
			t.Error(err)
			return
		}
		s := testSink(t, Config{Destinations: []string{"10.9.0.3:5004"}}, rtptest.Format(t, pipeline.UYVY, 320, 240, 100))
		d := (*s.sender.dests.Load())[0]
		if err := d.socket.conn.SetWriteBuffer(1); err != nil { // the kernel uses its minimum
			t.Error(err)
		}
		start := time.Now()
		for range 100 {
			d.report(make([]byte, 200))
		}
		if took, failed := time.Since(start), d.counters.errors.Load(); took > 15*time.Second || failed == 0 || failed == 100 {
			t.Errorf("100 reports took %v, %d failed", took, failed)
		}
	})
}

// TestPathMTU checks that the narrowest path counts, that a path with a larger MTU than usual does not, and that
// unknown destinations have no effect.
func TestPathMTU(t *testing.T) {
	rtptest.InNamespace(t, func() {
		rtptest.IP(t, "link", "set", "lo", "up") // has an MTU of 65,536 bytes
		rtptest.TransmitOnly(t)
		rtptest.IP(t, "link", "set", "x", "mtu", "1400")
		rtptest.IP(t, "address", "add", "fd00::1/64", "dev", "x", "nodad")
		for _, tt := range []struct {
			destinations []string
			iface        string
			want         int
		}{
			{nil, "", 0},
			{[]string{"127.0.0.1:5004"}, "", 0},
			{[]string{"127.0.0.1:5004", "10.9.0.2:5004"}, "", 1400},
			{[]string{"[fd00::2]:5004"}, "", 1400},
			{[]string{"239.1.2.3:5004"}, "x", 1400},
			{[]string{"10.77.0.1:5004", "10.9.0.2"}, "", 0},
		} {
			if got := PathMTU(t.Context(), tt.destinations, tt.iface); got != tt.want {
				t.Errorf("%v by %q: %d, want %d", tt.destinations, tt.iface, got, tt.want)
			}
		}
	})
}
