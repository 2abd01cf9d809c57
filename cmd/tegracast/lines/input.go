// SPDX-License-Identifier: Apache-2.0

package lines

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/pipeline"
)

// edgePin matches the times of edges with the frames of a source.
type edgePin struct {
	line    Input
	matcher *capture.Matcher
	pps     bool
	offset  atomic.Int64 // ns by which the machine's clock is ahead of the pulse per second
}

func (p *edgePin) run(ctx context.Context) {
	for {
		select {
		case e := <-p.line.Edges():
			p.matcher.Edge(e.At)
			p.offset.Store(int64(secondOffset(e.At)))
		case <-ctx.Done():
			return
		}
	}
}

// secondOffset returns a time's distance from the nearest whole second, from -0.5 s up to but not including 0.5 s.
func secondOffset(t time.Time) time.Duration {
	off := time.Duration(t.Nanosecond())
	if off >= time.Second/2 {
		off -= time.Second
	}
	return off
}

// frame passes a frame's times to the matcher.
func (p *edgePin) frame(f *pipeline.Frame) { p.matcher.Frame(f.Times) }

func (p *edgePin) close() error { return p.line.Close() }

func (p *edgePin) books() Books {
	b := Books{Lost: p.line.Lost(), Match: p.matcher.Stats()}
	if p.pps {
		b.PPS = time.Duration(p.offset.Load())
	}
	return b
}

// recordPin triggers a recording.
type recordPin struct {
	line  Input
	tell  func(at time.Time)
	edges atomic.Uint64
}

func (p *recordPin) run(ctx context.Context) {
	for {
		select {
		case e := <-p.line.Edges():
			p.edges.Add(1)
			p.tell(e.At)
		case <-ctx.Done():
			return
		}
	}
}

func (p *recordPin) close() error { return p.line.Close() }

func (p *recordPin) books() Books {
	return Books{Lost: p.line.Lost(), Records: true, Match: capture.MatchStats{Edges: p.edges.Load()}}
}
