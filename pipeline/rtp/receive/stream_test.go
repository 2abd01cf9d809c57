// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"bytes"
	"image/jpeg"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/pion/rtcp"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/codec"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// feed is a stream of frames as datagrams, and the received stream to which they are passed.
type feed struct {
	t      testing.TB
	sink   *sender
	frames []*pipeline.Frame
	media  rtp.Media
	now    time.Time
	got    [][]byte
	s      *stream
}

func newFeed(t testing.TB, p rtp.Payload, frames int) *feed {
	t.Helper()
	if p == rtp.H264 {
		return newFeedOf(t, p, rtptest.Format(t, pipeline.I420, 640, 360, 30), frames)
	}
	if p == rtp.JPEG {
		return newFeedOf(t, p, rtptest.Format(t, pipeline.I420, 200, 92, 30), frames)
	}
	return newFeedOf(t, p, rtptest.Format(t, pipeline.UYVY, 320, 24, 30), frames)
}

func newFeedOf(t testing.TB, p rtp.Payload, f pipeline.Format, frames int) *feed {
	t.Helper()
	x := &feed{t: t, now: time.Unix(1700000000, 0)}
	stream := rtp.Stream{Payload: p, Start: testStart(), Checksum: true, Quality: 100}
	if p == rtp.H264 {
		h, err := codec.NewH264(f, 8*f.Width*f.Height)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		})
		stream.H264, stream.MTU = h, 576
	}
	x.sink = testSender(t, stream, f)
	x.media = rtp.Media{Payload: p, PayloadType: p.Type(), Width: f.Width, Height: f.Height}
	x.s = testStream(t, x.media, func(b []byte, _ FrameInfo) { x.got = append(x.got, bytes.Clone(b)) })
	for n := range frames {
		x.frames = append(x.frames, rtptest.Frame(f, n))
	}
	return x
}

// send feeds frame n, after change has modified its packets, and its RTCP compound.
func (x *feed) send(n int, change func([][]byte) [][]byte) {
	x.t.Helper()
	wire := packets(x.t, x.sink, x.frames[n])
	if change != nil {
		wire = change(wire)
	}
	for _, b := range wire {
		x.s.packet(b, x.now)
	}
	x.checksum(x.now)
	x.now = x.now.Add(time.Second / 30)
}

func (x *feed) checksum(now time.Time) {
	c := x.sink.compounds
	x.s.control(c.Checksum(c.SenderReport(now, 0, 0), x.sink.train.Checksum()), netip.AddrPort{}, now)
}

func (x *feed) expect(want Stats) {
	x.t.Helper()
	x.s.finish()
	got := x.s.snapshot()
	got.Packets, got.Bytes, got.Latency, got.Jitter, got.LastPacket = 0, 0, pipeline.Percentiles{}, 0, time.Time{}
	if got != want {
		x.t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func shuffle(p [][]byte) [][]byte {
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(p), func(i, j int) { p[i], p[j] = p[j], p[i] })
	return p
}

func TestReceptionInOrder(t *testing.T) {
	for _, p := range []rtp.Payload{rtp.Raw, rtp.JPEG, rtp.H264} {
		x := newFeed(t, p, 40)
		for n := range x.frames {
			x.send(n, nil)
		}
		x.expect(Stats{Frames: 40, Matched: 40})
		for n, b := range x.got {
			x.same(n, b)
		}
	}
}

// same compares a received picture with the frame.
func (x *feed) same(n int, b []byte) {
	x.t.Helper()
	if x.media.Payload == rtp.Raw {
		if !bytes.Equal(b, rtptest.Lines(x.frames[n])) {
			x.t.Errorf("frame %d differs", n)
		}
		return
	}
	if x.media.Payload == rtp.H264 {
		if unit, _ := rtp.NextUnit(b); len(unit) == 0 {
			x.t.Errorf("frame %d is % .8x", n, b)
		}
		return
	}
	img, err := jpeg.Decode(bytes.NewReader(b))
	if err != nil {
		x.t.Fatal(err)
	}
	if img.Bounds().Dx() != x.media.Width || img.Bounds().Dy() != x.media.Height {
		x.t.Errorf("frame %d is %v", n, img.Bounds())
	}
}

func TestDisturbedReception(t *testing.T) {
	var count uint64
	reverse := func(p [][]byte) [][]byte { count = uint64(len(p)); slices.Reverse(p); return p }
	for _, p := range []rtp.Payload{rtp.Raw, rtp.JPEG, rtp.H264} {
		t.Run(p.String(), func(t *testing.T) {
			x := newFeed(t, p, 4)
			x.send(0, nil)
			x.send(1, reverse)
			x.send(2, nil)
			x.send(3, nil)
			x.expect(Stats{Frames: 4, Matched: 4, Reordered: count - 1})
			x.same(1, x.got[1])

			x = newFeed(t, p, 4)
			x.send(0, nil)
			x.send(1, func(p [][]byte) [][]byte { return append(slices.Clone(p), p...) })
			x.send(2, nil)
			x.send(3, nil)
			x.expect(Stats{Frames: 4, Matched: 4, Duplicates: count})

			x = newFeed(t, p, 5)
			x.send(0, nil)
			x.send(1, func(p [][]byte) [][]byte { return append(slices.Clone(p[:3]), p[5:]...) })
			x.send(2, nil)
			x.send(3, nil)
			x.send(4, nil)
			x.expect(Stats{Frames: 4, Matched: 4, Damaged: 1, Lost: 2})

			x = newFeed(t, p, 3) // the last packet, with the marker, is lost
			for n := range 3 {
				x.send(n, func(p [][]byte) [][]byte {
					if n == 1 {
						p = p[:len(p)-1]
					}
					return p
				})
			}
			x.expect(Stats{Frames: 2, Matched: 2, Damaged: 1, Lost: 1})

			x = newFeed(t, p, 3) // a packet arrives after two later frames
			var late []byte
			x.send(0, nil)
			x.send(1, func(p [][]byte) [][]byte { late = p[1]; return append(slices.Clone(p[:1]), p[2:]...) })
			x.send(2, nil)
			x.s.packet(late, x.now)
			x.expect(Stats{Frames: 3, Matched: 3, Reordered: 1})

			x = newFeed(t, p, 4) // and after its frame was given up
			x.send(0, nil)
			x.send(1, func(p [][]byte) [][]byte { late = p[1]; return append(slices.Clone(p[:1]), p[2:]...) })
			x.send(2, nil)
			x.send(3, nil)
			x.s.packet(late, x.now)
			x.expect(Stats{Frames: 3, Matched: 3, Reordered: 1, Damaged: 1, Late: 1})

			x = newFeed(t, p, 4) // three frames in a row are damaged
			for n := range 4 {
				x.send(n, func(p [][]byte) [][]byte {
					if n > 0 {
						p = append(slices.Clone(p[:n]), p[n+1:]...)
					}
					return p
				})
			}
			if damaged := x.s.stats.Damaged; damaged != 1 {
				t.Errorf("%d frames given up while two may still be completed", damaged)
			}
			x.expect(Stats{Frames: 1, Matched: 1, Lost: 3, Damaged: 2}) // the newest may be incomplete

			x = newFeed(t, p, 3) // joined in the middle of a frame
			x.send(0, func(p [][]byte) [][]byte { return p[2:] })
			x.send(1, shuffle)
			x.send(2, nil)
			if x.s.finish(); x.s.stats.Frames != 2 || x.s.stats.Damaged != 0 || x.s.seq.lost() != 0 {
				t.Errorf("joined in the middle: %+v", x.s.snapshot())
			}
		})
	}
}

func TestChecksumsTell(t *testing.T) {
	x := newFeed(t, rtp.Raw, 3)
	x.send(0, nil)
	x.send(1, func(p [][]byte) [][]byte { p[3][100] ^= 1; return p })
	x.send(2, nil)
	x.expect(Stats{Frames: 3, Matched: 2, Mismatched: 1})

	x = newFeed(t, rtp.Raw, 3) // the checksum arrives before the frame
	wire := packets(t, x.sink, x.frames[0])
	x.s.packet(wire[0], x.now)
	x.checksum(x.now)
	for _, b := range wire[1:] {
		x.s.packet(b, x.now)
	}
	x.expect(Stats{Frames: 1, Matched: 1})

	x = newFeed(t, rtp.Raw, 40) // no checksums at all; that of the newest frame may be in transit
	for n := range x.frames {
		for _, b := range packets(t, x.sink, x.frames[n]) {
			x.s.packet(b, x.now)
		}
	}
	x.expect(Stats{Frames: 40, Unverified: 39})
}

// TestDamageTells checks the sender's reports about incomplete frames, including frames of which no packet arrived, or
// after which no frame follows.
func TestDamageTells(t *testing.T) {
	x := newFeed(t, rtp.Raw, 5)
	cut := func(n, end int) {
		for _, b := range packets(t, x.sink, x.frames[n])[:end] {
			x.s.packet(b, x.now)
		}
		x.sink.Packetizer.(rtp.Slicer).Unsent(x.sink.train.Len() - end)
		c := x.sink.compounds
		x.s.control(c.Damage(c.SenderReport(x.now, 0, 0), x.sink.train.Damage(end)), netip.AddrPort{}, x.now)
	}
	x.send(0, nil)
	cut(1, 7)
	cut(2, 0)
	x.send(3, nil)
	cut(4, 23)
	x.expect(Stats{Frames: 2, Matched: 2, Damaged: 3, SourceDamaged: 3})
}

func TestSenderRestarts(t *testing.T) {
	x := newFeed(t, rtp.Raw, 3)
	x.send(0, nil)
	old := x.sink
	x.sink = testSender(t, rtp.Stream{Start: &rtp.Start{SSRC: 99}, Checksum: true}, old.format)
	x.send(1, nil) // too early: another sender may not yet take over
	foreign := x.s.stats.Foreign
	if x.s.stats.Frames != 1 || foreign == 0 {
		t.Fatalf("%+v", x.s.snapshot())
	}
	c := old.compounds
	x.s.control(c.Bye(c.SenderReport(x.now, 0, 0)), netip.AddrPort{}, x.now)
	x.send(2, nil)
	x.expect(Stats{Frames: 2, Matched: 2, Foreign: foreign, Byes: 1})
}

func TestWhenTheStreamWasHeardLast(t *testing.T) {
	x := newFeed(t, rtp.Raw, 3)
	if st := x.s.snapshot(); !st.LastPacket.IsZero() || st.Ended {
		t.Errorf("before the first packet: %+v", st)
	}
	x.send(0, nil)
	last := x.now
	x.send(1, nil)
	if st := x.s.snapshot(); !st.LastPacket.Equal(last) || st.Ended {
		t.Errorf("last packet %v, want %v; ended %v", st.LastPacket, last, st.Ended)
	}
	c := x.sink.compounds
	x.s.control(c.Bye(c.SenderReport(x.now, 0, 0)), netip.AddrPort{}, x.now)
	if !x.s.snapshot().Ended {
		t.Error("not ended after BYE")
	}
	x.send(2, nil)
	if x.s.snapshot().Ended {
		t.Error("ended, although packets came after BYE")
	}
}

func TestLatencyFromSenderReports(t *testing.T) {
	x := newFeed(t, rtp.Raw, 10)
	for n, f := range x.frames {
		f.Times.ExposureStart = x.now.Add(-25 * time.Millisecond)
		x.send(n, nil)
	}
	p := x.s.snapshot().Latency
	if p.Count != 9 || p.P50 < 24900*time.Microsecond || p.P50 > 27*time.Millisecond { // the first frame arrived before a report
		t.Errorf("latency %+v, want 25 ms nine times", p)
	}
}

// TestReportsAtTheMediaPort checks that reports that come to the port of the media count exactly if the description has
// a=rtcp-mux (RFC 5761).
func TestReportsAtTheMediaPort(t *testing.T) {
	for _, mux := range []bool{true, false} {
		x := newFeed(t, rtp.Raw, 1)
		x.s.media.Mux = mux
		for _, b := range packets(t, x.sink, x.frames[0]) {
			x.s.packet(b, x.now)
		}
		c := x.sink.compounds
		x.s.packet(c.Checksum(c.SenderReport(x.now, 0, 0), x.sink.train.Checksum()), x.now)
		x.s.finish()
		st := x.s.snapshot()
		if got := !x.s.sr.at.IsZero(); got != mux || (st.Matched == 1) != mux || st.Malformed != 0 {
			t.Errorf("a=rtcp-mux %t: a sender report %t, %+v", mux, got, st)
		}
	}
}

// TestJitter follows RFC 3550 A.8 by hand: transit times of 0, 168, 0 and 0 ticks give J = 168, 168+168-11, 325-20. The
// counters have the mean of these.
func TestJitter(t *testing.T) {
	s := testStream(t, rtp.Media{Payload: rtp.JPEG, PayloadType: 26}, nil)
	base := time.Unix(1700000000, 0)
	for i, late := range []time.Duration{0, 168, 0, 0} {
		s.header.Timestamp = rtp.MediaClock(base) + uint32(3000*i)
		s.time(base.Add((time.Duration(3000*i) + late) * time.Second / rtp.ClockRate).Add(time.Microsecond))
		if want := [4]uint32{0, 168, 325, 305}[i]; s.jitter != want {
			t.Fatalf("packet %d: jitter %d/16, want %d/16", i, s.jitter, want)
		}
	}
	if got, want := s.snapshot().Jitter, (168+325+305)/3*time.Second/(16*rtp.ClockRate); got != want {
		t.Errorf("mean jitter %v, want %v", got, want)
	}
}

func TestReceiverReports(t *testing.T) {
	x := newFeed(t, rtp.Raw, 6)
	if x.s.report(x.now) != nil {
		t.Fatal("report before a sender report")
	}
	x.send(0, nil)
	x.send(1, func(p [][]byte) [][]byte { return p[:len(p)/2] }) // 12 of 24 packets
	x.send(2, nil)
	b := x.s.report(x.now)
	all, err := rtcp.Unmarshal(b)
	if err != nil || (*rtcp.CompoundPacket)(&all).Validate() != nil {
		t.Fatalf("%v: %v", all, err)
	}
	r := all[0].(*rtcp.ReceiverReport).Reports[0]
	if r.SSRC != testStart().SSRC || r.FractionLost != 12*256/72 || r.TotalLost != 12 ||
		r.LastSequenceNumber != testStart().Sequence+71 || r.Delay != 65536/30 {
		t.Errorf("%+v", r)
	}
	x.send(3, nil)
	all, _ = rtcp.Unmarshal(x.s.report(x.now))
	if r := all[0].(*rtcp.ReceiverReport).Reports[0]; r.FractionLost != 0 || r.TotalLost != 12 {
		t.Errorf("second report %+v", r)
	}
}

func TestSequence(t *testing.T) {
	for _, bits := range []uint{16, 32} {
		s := newSequence(bits)
		mask := uint32(1)<<bits - 1
		for i, step := range []struct {
			n    uint32
			want verdict
			lost uint64
		}{
			{mask - 1, inOrder, 0},
			{mask, inOrder, 0},
			{1, inOrder, 1}, // over the wrap; 0 is missing
			{0, reordered, 0},
			{0, duplicate, 0},
			{mask, duplicate, 0},
			{mask - 3, reordered, 0}, // before the first one: not counted
			{mask - 3, duplicate, 0},
			{5, inOrder, 3},
			{4, reordered, 2},
			{5 + 2999, inOrder, 3000},
			{1 << (bits - 1), jumped, 3000},
			{3005, inOrder, 3000},
			{1 << (bits - 1), jumped, 3000},
			{1<<(bits-1) + 1, inOrder, 3000}, // two in a row: believed
		} {
			if got := s.update(step.n & mask); got != step.want || s.lost() != step.lost {
				t.Fatalf("%d bits, step %d, number %#x: verdict %d, lost %d; want %d, %d", bits, i, step.n, got, s.lost(), step.want, step.lost)
			}
		}
	}
}

// TestSequenceForgets goes once around the window of duplicates, and then skips numbers.
func TestSequenceForgets(t *testing.T) {
	s := newSequence(32)
	for n := range uint32(window) {
		s.update(n)
	}
	s.update(window + 10)
	if v := s.update(window + 5); v != reordered || s.lost() != 9 {
		t.Errorf("verdict %d, lost %d", v, s.lost())
	}
	s.update(3 * window)
	if v := s.update(3*window - 1); v != reordered {
		t.Errorf("verdict %d after a gap longer than the window", v)
	}
}

func TestCoverage(t *testing.T) {
	var c coverage
	for i, step := range []struct{ from, to, bytes, spans int }{
		{10, 20, 10, 1},
		{20, 30, 20, 1},
		{40, 50, 30, 2},
		{0, 5, 35, 3},
		{12, 18, 35, 3},
		{28, 42, 45, 2},
		{5, 10, 50, 1},
		{7, 7, 50, 1},
		{0, 60, 60, 1},
	} {
		if c.add(step.from, step.to); c.bytes != step.bytes || len(c.spans) != step.spans {
			t.Fatalf("step %d: %d bytes in %v", i, c.bytes, c.spans)
		}
	}
	if !c.covers(60) || c.covers(59) || c.covers(61) {
		t.Error("whole")
	}
	c.reset()
	refused := 0
	for i := range maxSpans + 10 {
		if !c.add(2*i, 2*i+1) {
			refused++
		}
	}
	if refused != 10 {
		t.Errorf("%d of too many holes refused", refused)
	}
}
