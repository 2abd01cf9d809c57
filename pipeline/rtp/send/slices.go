// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"errors"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// sliceSpan is the part of a slice's arrival time over which its packets are spread in a paced stream. For the rest of
// that time the sender waits for the next slice.
const sliceSpan = 0.5

// fillingFrame is the state of a frame that is sent while it is filling.
type fillingFrame struct {
	ctx    context.Context
	frame  *pipeline.Frame // nil if the frame was already complete
	packer rtp.Slicer
	waiter pipeline.Waiter
	waited bool  // the latest await had to wait
	ended  error // why the frame did not become complete; nil if it did
}

// frame waits for the next frame. In a stream with slices, that may be a filling frame, whose packets can be sent as
// its lines arrive. A stream with slices skips to the newest frame if it is more than a period behind, or three
// quarters of a period if it is paced: a receiver's buffer drains 10 % faster than the stream's rate, so each frame can
// make up for at most an eleventh of a period.
func (s *Sink) frame(ctx context.Context, q *pipeline.Queue, t *train) (*pipeline.Frame, error) {
	t.filling = fillingFrame{}
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

// fills returns the initial state of a frame that is sent while it is filling.
func (s *Sink) fills(ctx context.Context, f *pipeline.Frame) fillingFrame {
	return fillingFrame{ctx: ctx, frame: f, packer: s.packer.(rtp.Slicer), waiter: pipeline.Waiter{Wake: s.wake}}
}

// planSlices sets the schedule of a filling frame of n packets at time now.
func (x *transmitter) planSlices(n int, now time.Duration) {
	if x.period > 0 {
		x.bucket.set(n, x.period, x.config.Pacing)
	}
	bursts := (n + x.config.Burst - 1) / x.config.Burst
	x.pacer.beginFrame(x.pacer.next(now), bursts, time.Duration(sliceSpan*float64(x.span)), x.span)
}

// delay moves the schedule at time now so that burst k, of n packets, is not due before it fits into a receiver's
// buffer. Then lines that arrive faster than the frame rate implies, and packets delayed because the thread was held
// up, leave at the rate at which the buffer drains. waited is true if there was nothing to send before, so that the
// burst is not due before now.
func (x *transmitter) delay(k, n int, now time.Duration, waited bool) {
	at := now
	if x.span > 0 {
		at = x.bucket.room(n, now)
	}
	if waited || at > now {
		x.pacer.shift(k, at)
	}
}

// closing is the maximum number of bursts that may be sent back to back after a frame's last line has arrived. They fit
// into a receiver's default socket buffer.
const closing = maxBehind

// hasten sends the rest of a filling frame, from packet from on, without pauses, if all lines have arrived and the rest
// is small and fits into a receiver's buffer. Then the end of the frame is delayed no longer than its lines.
func (x *transmitter) hasten(t *train, from int) {
	g, now, left := &t.filling, x.pacer.now(), t.Len()-from
	if g.frame == nil {
		return
	}
	if g.frame.Lines() == g.frame.Format.Height && left <= closing*x.config.Burst && x.bucket.room(left, now) <= now {
		x.pacer.beginFrame(now, 1, 0, 0)
	}
}

// await waits until packet from may be sent, and returns the end of the packets that may be sent. The last packet, with
// the marker, waits until the frame is complete. The error is that of the context, or one that means that the frame is
// damaged.
func (t *train) await(from int, turn *turn) (to int, err error) {
	g := &t.filling
	if from == t.Len()-1 {
		if _, err := g.lines(pipeline.Whole, turn); err != nil {
			return 0, err
		}
		g.packer.Seal(t.Train, g.frame)
		return t.Len(), nil
	}
	g.waited = t.waits(from)
	lines, err := g.lines(from/g.packer.Packets(1)+1, turn)
	if err != nil {
		return 0, err
	}
	return min(g.packer.Packets(lines), t.Len()-1), nil
}

// waits reports whether await would wait for lines now.
func (t *train) waits(from int) bool {
	g := &t.filling
	if from == t.Len()-1 {
		return g.frame.Filling()
	}
	return g.frame.Lines() <= from/g.packer.Packets(1)
}

// lines waits until n lines have arrived, while other turns use the thread.
func (g *fillingFrame) lines(n int, turn *turn) (int, error) {
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

// awaitEnd waits for the end of a filling frame that has no destination.
func (t *train) awaitEnd(turn *turn) {
	if g := &t.filling; g.frame != nil {
		_, g.ended = g.lines(pipeline.Whole, turn)
	}
}

// abandon ends a train whose frame is damaged or whose stream has ended. It sends each destination the packets that some
// other destination already has. The remaining packets are not sent, so there is no marker and no checksum. For a
// damaged frame, an RTCP packet reports the damage.
func (x *transmitter) abandon(t *train, dests []*destination, why error) {
	sent := 0
	for _, d := range dests {
		sent = max(sent, d.progress.next)
	}
	for _, d := range dests { // a connection may have waited for more packets; its sequence numbers must not have a gap
		d.flush(t, sent)
	}
	for _, d := range dests {
		if d.progress.why == 0 { // otherwise it was given up before
			d.counters.cut.Add(1)
			d.counters.dropped.Add(uint64(sent - d.progress.next))
		}
	}
	t.filling.packer.Unsent(t.Len() - sent)
	t.filling.ended = why
	if errors.Is(why, pipeline.ErrDamaged) {
		x.sendReports(dests, func(b []byte) []byte { return x.control.Damage(b, t.Damage(sent)) })
	}
}
