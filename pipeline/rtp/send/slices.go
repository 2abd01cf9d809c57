// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// sliceSpan is the part of a paced frame's time in which the packets of a frame that fills would be sent if all were there:
// those of a slice are spread over that part of its time, and the next slice is waited for.
const sliceSpan = 0.4

// filling is a frame that is sent while it fills.
type filling struct {
	ctx     context.Context
	frame   *pipeline.Frame // nil: the frame was complete before
	packer  rtp.Slicer
	summed  int  // lines that are in the checksum
	waited  bool // the last await had to wait
	damaged bool // the frame turned out to be damaged
}

// frame waits for a frame: for one whose packets may be sent as they come, if the stream is one of slices.
func (s *Sink) frame(ctx context.Context, q *pipeline.Queue, t *train) (*pipeline.Frame, error) {
	t.filling = filling{}
	packer, can := s.packer.(rtp.Slicer)
	if !s.config.Slices || !can {
		return q.Next(ctx)
	}
	f, err := q.NextFilling(ctx)
	if err == nil && f.Filling() {
		t.filling = filling{ctx: ctx, frame: f, packer: packer}
	}
	return f, err
}

// planSlices sets the schedule of a frame of n packets that fills, seen at now.
func (x *transmitter) planSlices(n int, now time.Duration) {
	if x.period > 0 {
		x.bucket.set(n, x.period, x.config.Pacing)
	}
	bursts := (n + x.config.Burst - 1) / x.config.Burst
	x.pacer.begin(x.pacer.next(now), bursts, time.Duration(sliceSpan*float64(x.span)), x.span)
}

// await waits until packet from may be sent, and returns which one may not. The last packet, with the marker, waits until the
// frame is complete. An error says that the frame is damaged, or ctx's end.
func (t *train) await(from int) (to int, err error) {
	g := &t.filling
	height := g.frame.Format.Height
	if from == t.Len()-1 {
		if err := g.frame.WaitWhole(g.ctx); err != nil {
			return 0, err
		}
		t.sum(height)
		g.packer.Seal(t.Train, g.frame)
		return t.Len(), nil
	}
	perLine := g.packer.Packets(1)
	if g.waited = g.frame.Lines() <= from/perLine; g.waited {
		t.sum(from / perLine) // there is time
	}
	lines, err := g.frame.WaitLines(g.ctx, from/perLine+1)
	if err != nil {
		return 0, err
	}
	return min(g.packer.Packets(lines), t.Len()-1), nil
}

// sum goes on with the checksum up to a line.
func (t *train) sum(to int) {
	g := &t.filling
	g.packer.SumLines(t.Train, g.frame, g.summed, to)
	g.summed = to
}

// abandon ends a train whose frame is damaged: what has not been sent is not sent, so no marker, and no checksum.
func (x *transmitter) abandon(t *train, dests []*destination) {
	sent := 0
	for _, d := range dests {
		sent = max(sent, d.progress.next)
	}
	for _, d := range dests {
		d.counters.cut.Add(1)
		d.counters.dropped.Add(uint64(sent - d.progress.next))
	}
	t.filling.packer.Unsent(t.Len() - sent)
	t.filling.damaged = true
}
