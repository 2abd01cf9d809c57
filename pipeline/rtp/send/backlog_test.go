// SPDX-License-Identifier: Apache-2.0

package send

import (
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// A sending is a transmitter in virtual time.
type sending struct {
	*transmitter
	now     time.Duration
	packets int           // per frame
	costs   time.Duration // time per frame in addition to its packets
	ahead   time.Duration // how early the kernel accepts bursts; 0: it does not hold them
	within  time.Duration // how long the next frame is held up after a third of its packets
	worst   float64       // highest level of the bucket
	gap     time.Duration // shortest time between the bursts of two frames
}

func newSending(t *testing.T, c Config, f pipeline.Format) *sending {
	t.Helper()
	c = c.withDefaults()
	c.Start = testStart()
	p, err := rtp.NewPacketizer(c.Stream, f)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := p.NewTrain()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	return &sending{transmitter: newTransmitter(c, f, &train{Train: tr}), now: time.Hour, packets: tr.Len(), gap: time.Hour}
}

// frame sends a frame that arrived at came.
func (s *sending) frame(came time.Duration) {
	s.now = max(s.now, came)
	last := s.bucket.at
	s.plan(s.packets, came, s.now)
	for k, left := 0, s.packets; left > 0; k++ {
		n := min(s.config.Burst, left)
		if left -= n; left < s.packets*2/3 {
			s.now, s.within = s.now+s.within, 0
		}
		s.delay(k, n, s.now, false)
		if s.pacer.schedule(k, s.now); s.pacer.due-s.ahead-s.now > earlyEnough {
			s.now = s.pacer.due - s.ahead
		}
		at := s.now
		if s.ahead > 0 {
			at = s.pacer.due
		}
		if s.bucket.add(n, at); k == 0 {
			s.gap = min(s.gap, at-last)
		}
		s.worst = max(s.worst, s.bucket.level)
	}
	s.now += s.costs
}

// TestABacklogDrains plays 4K video at 60 frames per second to a sender that is held up once, or that needs more time
// per frame than the pause between two frames.
func TestABacklogDrains(t *testing.T) {
	const ms = time.Millisecond
	const buffer, narrow = 12960*60/300 + 32, 12960*60/27000 + 20 // plus a margin, because bursts may leave slightly early
	f := rtptest.Format(t, pipeline.UYVY, 3840, 2160, 60)
	for name, tt := range map[string]struct {
		pacing             Pacing
		costs, hold, ahead time.Duration
		inside             bool    // the delay is inside a frame instead of between two
		within             int     // number of frames after which none is later than its costs imply
		full               float64 // maximum number of packets in the receiver's buffer
	}{
		"in time":          {costs: ms, within: 1, full: 200},
		"held up":          {costs: ms / 2, hold: 20 * ms, within: 20, full: buffer},
		"inside a frame":   {costs: ms / 2, hold: 20 * ms, inside: true, within: 20, full: buffer},
		"narrow, inside":   {pacing: PaceNarrow, costs: ms / 4, hold: 20 * ms, inside: true, within: 20, full: narrow},
		"costs more":       {costs: 13 * ms / 6, hold: 4 * ms, within: 40, full: buffer},
		"kernel paces":     {costs: ms / 2, hold: 20 * ms, ahead: 64 * 18 * time.Microsecond, within: 20, full: buffer},
		"costs most":       {costs: 4 * ms, hold: 4 * ms, within: 40, full: buffer},
		"narrow, held up":  {pacing: PaceNarrow, costs: ms / 4, hold: 20 * ms, within: 20, full: narrow},
		"wide, costs more": {pacing: PaceWide, costs: 13 * ms / 6, hold: 4 * ms, within: 40, full: buffer},
	} {
		s := newSending(t, Config{Pacing: tt.pacing}, f)
		s.costs, s.ahead = tt.costs, tt.ahead
		start, late := s.now, 0
		for n := range 200 {
			if n == 10 && tt.inside {
				s.within = tt.hold
			} else if n == 10 {
				s.now += tt.hold
			}
			came := start + time.Duration(n)*s.period
			if s.frame(came); s.now > came+s.period+tt.costs && n >= 10 {
				late = n - 9
			}
		}
		if late > tt.within {
			t.Errorf("%s: frame %d after the hold is late, at the end %v", name, late, s.now-start-200*s.period)
		}
		if s.worst > tt.full {
			t.Errorf("%s: the receiver's buffer has %.0f packets, at most %.0f fit", name, s.worst, tt.full)
		}
		if s.gap < 0 {
			t.Errorf("%s: a frame begins %v before the last burst of the one before", name, -s.gap)
		}
	}
}

// A frame that is in time takes nine tenths of the period, whatever happened before.
func TestAFrameInTimeIsNotHurried(t *testing.T) {
	f := rtptest.Format(t, pipeline.UYVY, 1920, 1080, 30)
	s := newSending(t, Config{}, f)
	for n := range 10 {
		came := time.Hour + time.Duration(n)*s.period
		if s.frame(came); s.pacer.interval != s.span/time.Duration((s.packets+15)/16) {
			t.Errorf("frame %d: a burst every %v", n, s.pacer.interval)
		}
	}
}

// A receiver's buffer has room for more packets than a small frame has, but the frame is sent at no more than twice the
// rate.
func TestASmallFrameIsNoBurst(t *testing.T) {
	f := rtptest.Format(t, pipeline.UYVY, 320, 240, 100)
	s := newSending(t, Config{}, f)
	s.frame(s.now)
	s.now += 10 * s.period
	if s.frame(s.now - 9*s.period); s.pacer.interval != s.span/2/(240/16) {
		t.Errorf("a burst every %v", s.pacer.interval)
	}
}

// The bursts of an encoded picture follow each other after a millisecond, or sooner where the picture would otherwise be
// spread over more than nine tenths of the period, or later where a receiver's buffer or the interface is slow. Slow
// destinations never have longer than for other frames, unless the schedule itself ends later.
func TestEncodedPicturesLeaveSoon(t *testing.T) {
	f := rtptest.Format(t, pipeline.I420, 1920, 1080, 30)
	for _, tt := range []struct {
		pacing      Pacing
		packets     int
		late, pause time.Duration // pause 0: that of the receiver's buffer
	}{
		{PaceFrame, 20, 0, burstTime},
		{PaceFrame, 160, 0, burstTime},
		{PaceFrame, 16000, 0, 27 * time.Microsecond},
		{PaceFrame, 160, 20 * time.Millisecond, burstTime / 2}, // late: at twice the rate
		{PaceNarrow, 20, 20 * time.Microsecond, 0},
		{PaceNarrow, 40, 20 * time.Microsecond, 0},
	} {
		s := newSending(t, Config{Stream: rtp.Stream{Payload: rtp.JPEG}, Pacing: tt.pacing}, f)
		s.packets = tt.packets
		begun := s.now
		s.frame(begun - tt.late)
		bursts := time.Duration((tt.packets+s.config.Burst-1)/s.config.Burst - 1)
		if took := s.pacer.due - begun; tt.pause > 0 && (took/bursts > tt.pause+3*time.Microsecond || took/bursts < tt.pause) {
			t.Errorf("%+v: a burst every %v", tt, took/bursts)
		}
		end, usual := s.pacer.due+s.grace, begun-tt.late+s.span+s.patience
		if end > max(usual, s.pacer.due+s.patience) || end < usual-10*time.Millisecond {
			t.Errorf("%+v: slow destinations have until %v, want %v", tt, end-begun, usual-begun)
		}
	}
	s := newSending(t, Config{Stream: rtp.Stream{Payload: rtp.JPEG}}, f)
	slow := &destination{socket: socket{link: "eth0", speed: 100e6}}
	s.setDests([]*destination{slow, slow})
	s.packets = 48
	begun := s.now
	if s.frame(begun); s.pacer.due-begun < 10*time.Millisecond {
		t.Errorf("on a slow interface three bursts leave within %v", s.pacer.due-begun)
	}
	if s.setDests(nil); s.pause.Load() != int64(burstTime) {
		t.Errorf("without it a burst leaves every %v", time.Duration(s.pause.Load()))
	}
}

// A frame's arrival time is known if the sender waited for it, and estimated if it waited for the sender.
func TestArrivals(t *testing.T) {
	const ms = time.Millisecond
	a := arrivals{period: 10 * ms}
	for i, tt := range []struct {
		now    time.Duration
		waited bool
		want   time.Duration
	}{
		{100 * ms, true, 100 * ms}, // the first frame: nothing is known
		{111 * ms, false, 111 * ms},
		{140 * ms, true, 121 * ms},
		{150 * ms, true, 131 * ms},
		{155 * ms, false, 155 * ms},
		{160 * ms, true, 160 * ms}, // early
	} {
		if got := a.came(tt.now, tt.waited); got != tt.want {
			t.Errorf("%d: %v, want %v", i, got, tt.want)
		}
	}
	a = arrivals{last: ms}
	if got := a.came(100*ms, true); got != 100*ms {
		t.Errorf("without a rate: %v", got)
	}
}
