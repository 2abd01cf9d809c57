// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"errors"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// sliceSpan is the part of the time that a slice takes to arrive, in a paced stream, in which its packets are sent. The rest of
// that time the sender waits for the next slice.
const sliceSpan = 0.5

// filling is a frame that is sent while it fills.
type filling struct {
	ctx    context.Context
	frame  *pipeline.Frame // nil: the frame was complete before
	packer rtp.Slicer
	waiter pipeline.Waiter
	waited bool  // the last await had to wait
	ended  error // why the frame did not become complete
}

// frame waits for a frame: for one whose packets may be sent as they come, if the stream is one of slices. Such a stream goes on with
// the newest frame when it is more than a period late, or three quarters of one where it is paced: a receiver's buffer drains at a tenth
// more than the stream's rate, so each frame makes up for at most an eleventh of a period.
func (s *Sink) frame(ctx context.Context, q *pipeline.Queue, t *train) (*pipeline.Frame, error) {
	t.filling = filling{}
	if _, can := s.packer.(rtp.Slicer); !s.config.Slices || !can {
		return q.Next(ctx)
	}
	most := s.format.Height
	if s.sender.span > 0 {
		most -= most / 4
	}
	q.DropLate(most)
	f, err := q.NextFilling(ctx)
	if err == nil && f.Filling() {
		t.filling = s.fills(ctx, f)
	}
	return f, err
}

// fills has a frame sent while it fills.
func (s *Sink) fills(ctx context.Context, f *pipeline.Frame) filling {
	return filling{ctx: ctx, frame: f, packer: s.packer.(rtp.Slicer), waiter: pipeline.Waiter{Wake: s.wake}}
}

// planSlices sets the schedule of a frame of n packets that fills, seen at now.
func (x *transmitter) planSlices(n int, now time.Duration) {
	if x.period > 0 {
		x.bucket.set(n, x.period, x.config.Pacing)
	}
	bursts := (n + x.config.Burst - 1) / x.config.Burst
	x.pacer.begin(x.pacer.next(now), bursts, time.Duration(sliceSpan*float64(x.span)), x.span)
}

// delay moves the schedule so that burst k, of n packets, is not due before it fits into a receiver's buffer, seen at now: lines that
// come faster than the frame rate has them, and what a thread that was held up has to send, leave as the buffer drains. waited tells
// that there was nothing to send, so that the burst is not due before now.
func (x *transmitter) delay(k, n int, now time.Duration, waited bool) {
	at := now
	if x.span > 0 {
		at = x.bucket.room(n, now)
	}
	if waited || at > now {
		x.pacer.shift(k, at)
	}
}

// closing is how many bursts may follow each other at once behind a frame's last line: they fit a receiver's default socket
// buffer.
const closing = maxBehind

// hasten has the rest of a frame that fills, from packet from on, leave without pauses, if all its lines are there, and if it is
// little, and fits into a receiver's buffer: nobody waits for the end of the frame longer than for its lines.
func (x *transmitter) hasten(t *train, from int) {
	g, now, left := &t.filling, x.pacer.now(), t.Len()-from
	if g.frame == nil {
		return
	}
	if g.frame.Lines() == g.frame.Format.Height && left <= closing*x.config.Burst && x.bucket.room(left, now) <= now {
		x.pacer.begin(now, 1, 0, 0)
	}
}

// await waits until packet from may be sent, and returns which one may not. The last packet, with the marker, waits until the
// frame is complete. An error says that the frame is damaged, or ctx's end.
func (t *train) await(from int, turn *turn) (to int, err error) {
	g := &t.filling
	if from == t.Len()-1 {
		if _, err := g.lines(pipeline.Whole, turn); err != nil {
			return 0, err
		}
		g.packer.Seal(t.Train, g.frame)
		return t.Len(), nil
	}
	perLine := g.packer.Packets(1)
	g.waited = g.frame.Lines() <= from/perLine
	lines, err := g.lines(from/perLine+1, turn)
	if err != nil {
		return 0, err
	}
	return min(g.packer.Packets(lines), t.Len()-1), nil
}

// lines waits until n lines are there, while others have the thread.
func (g *filling) lines(n int, turn *turn) (int, error) {
	for {
		lines, there, err := g.frame.Await(&g.waiter, n)
		if there {
			return lines, err
		}
		if err := g.ctx.Err(); err != nil {
			g.frame.Forget(&g.waiter)
			return 0, err
		}
		turn.wait()
	}
}

// awaitEnd waits for the end of a frame that fills, where there is nobody to send it to.
func (t *train) awaitEnd(turn *turn) {
	if g := &t.filling; g.frame != nil {
		_, g.ended = g.lines(pipeline.Whole, turn)
	}
}

// abandon ends a train whose frame is damaged: what has not been sent is not sent, so no marker, and no checksum. RTCP says so.
func (x *transmitter) abandon(t *train, dests []*destination, why error) {
	sent := 0
	for _, d := range dests {
		sent = max(sent, d.progress.next)
	}
	for _, d := range dests {
		if d.progress.why == 0 { // else it was given up before
			d.counters.cut.Add(1)
			d.counters.dropped.Add(uint64(sent - d.progress.next))
		}
	}
	t.filling.packer.Unsent(t.Len() - sent)
	t.filling.ended = why
	if errors.Is(why, pipeline.ErrDamaged) {
		x.tell(dests, func(b []byte) []byte { return x.control.Damage(b, t.Damage(sent)) })
	}
}
