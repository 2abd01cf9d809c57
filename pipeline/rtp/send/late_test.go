// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// A lineCamera emits frames whose lines arrive one after another throughout the frame period.
type lineCamera struct {
	format pipeline.Format
	pool   *pipeline.Pool
	frames int
	seen   []time.Time // arrival of the last line of each frame
}

const cameraSteps = 48 // in which the lines of a frame arrive

func newLineCamera(f pipeline.Format, frames int) *lineCamera {
	slots := make([]pipeline.Slot, 16)
	for i := range slots {
		slots[i].Bytes = make([]byte, f.Size())
	}
	return &lineCamera{format: f, pool: pipeline.NewPool("camera", f, slots, nil), frames: frames, seen: make([]time.Time, frames)}
}

func (c *lineCamera) Format() pipeline.Format       { return c.format }
func (c *lineCamera) Status() pipeline.SourceStatus { return pipeline.SourceStatus{} }

func (c *lineCamera) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	start, period := time.Now(), c.format.Rate.Period()
	for n := range c.frames {
		f, err := c.pool.Wait(ctx)
		if err != nil {
			return err
		}
		f.Sequence = uint64(n)
		f.Fill()
		for k := 1; k <= cameraSteps; k++ {
			time.Sleep(time.Until(start.Add(time.Duration(n)*period + period*time.Duration(k)/cameraSteps)))
			f.Arrive(c.format.Height * k / cameraSteps)
			if k == 1 {
				f.Times.ExposureStart = time.Now()
				emit(f)
			}
		}
		f.Times.Captured = time.Now()
		c.seen[n] = f.Times.Captured
		f.Finish(nil)
	}
	return nil
}

// takes is a sender that accepts all packets, with one stall, and records when the last packet of each frame was sent.
type takes struct {
	at    uint64 // number of the frame with the stall
	from  int    // the stall is before this packet or a later one
	stall time.Duration
	left  map[uint64]time.Time
}

func (w *takes) send(_ int, t *train, from, to int) (packets, bytes int, errno unix.Errno) {
	n := t.Damage(0).Sequence
	if n == w.at && from >= w.from {
		time.Sleep(w.stall)
		w.stall = 0
	}
	if to == t.Len() {
		w.left[n] = time.Now()
	}
	for i := from; i < to; i++ {
		bytes += t.Size(i)
	}
	return to - from, bytes, 0
}

// A virtualSink sends in the virtual time of a synctest bubble.
type virtualSink struct{ *Sink }

func (s virtualSink) Run(ctx context.Context, q *pipeline.Queue) error {
	x := s.sender
	x.turn.ended = make(chan struct{})
	x.turn.yield = func(struct{}) bool {
		for x.turn.listen && !x.turn.woken.Swap(false) {
			time.Sleep(10 * time.Microsecond)
		}
		if !x.turn.listen {
			time.Sleep(x.turn.due - x.pacer.now())
		}
		return true
	}
	return s.sendFrames(ctx, q, func(send func()) {
		go func() {
			defer close(x.turn.ended)
			send()
		}()
	})
}

// TestALateStreamIsLevelAgain holds up a sender of slices for 40 ms, or for less than a frame period. Within eight
// frames, the last packet of a frame is again sent with the frame's last line. A receiver's buffer never overflows, and
// every skipped frame is counted.
func TestALateStreamIsLevelAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		packets, fps int // lines per frame, each in one packet: only their number matters
		pacing       Pacing
	}{
		"1080p60":            {3240, 60, PaceFrame},
		"1080p60, narrow":    {3240, 60, PaceNarrow},
		"1080p60, no pacing": {3240, 60, PaceBurst},
		"1080p240":           {3240, 240, PaceFrame},
		"2160p60":            {12960, 60, PaceFrame},
		"4320p30, MTU 9000":  {8640, 30, PaceFrame},
	} {
		f := rtptest.Format(t, pipeline.UYVY, 16, tt.packets, tt.fps)
		for _, stall := range []time.Duration{40 * time.Millisecond, f.Rate.Period() * 7 / 10, f.Rate.Period() * 9 / 10} {
			for quarter := range 4 {
				t.Run(fmt.Sprint(name, stall, quarter), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { levelAgain(t, f, tt.pacing, &takes{stall: stall, from: tt.packets * quarter / 4}) })
				})
			}
		}
	}
}

func levelAgain(t *testing.T, f pipeline.Format, pacing Pacing, way *takes) {
	const frames, level = 40, time.Millisecond
	way.at, way.left = 10, map[uint64]time.Time{}
	again := way.at + uint64(way.stall/f.Rate.Period()) + 8
	c := Config{Stream: rtp.Stream{Checksum: true}, Slices: true, Pacing: pacing, Logger: slog.New(slog.DiscardHandler)}
	s := testSink(t, c, f)
	d, err := s.sender.open(at("127.0.0.1:5998"), s.config)
	if err != nil {
		t.Fatal(err)
	}
	d.way.kind, d.way.best, d.way.now = Single, way, way
	s.sender.dests.Store(&[]*destination{d})
	camera := newLineCamera(f, frames)
	g := pipeline.NewGraph(pipeline.GraphConfig{Logger: c.Logger})
	if err := g.AddSource("camera", camera); err != nil {
		t.Fatal(err)
	}
	o, err := g.Attach(pipeline.OutputConfig{Name: "raw", Sink: virtualSink{s}, Depth: 12})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := uint64(0)
	for n := range uint64(frames) {
		left, sent := way.left[n]
		switch {
		case !sent && (n < way.at || n > again):
			t.Errorf("frame %d was left out", n)
		case sent && left.Sub(camera.seen[n]) > level:
			last = n
		}
	}
	if way.stall > 0 || last > again {
		t.Errorf("frame %d is late, want none after %d, and a stall; %v of it is left", last, again, way.stall)
	}
	books := o.Stats()
	if int(books.Delivered) != len(way.left) || books.Captured != frames || books.Delivered+books.Dropped["raw/late"] != frames {
		t.Errorf("%d frames left, the books have %+v", len(way.left), books)
	}
	if first := s.Stats().First; first.Count != books.Delivered || first.P50 > -f.Rate.Period()*9/10 || first.P50 < -f.Rate.Period() {
		t.Errorf("the first packets left %+v after the frames' DMA, of %d, want most a period before", first, books.Delivered)
	}
	if got, most := s.Stats().Bucket.Max, int(s.sender.bucket.full)+s.config.Burst; pacing != PaceBurst && got > most {
		t.Errorf("the buffer held up to %d packets, want at most %d", got, most)
	}
}
