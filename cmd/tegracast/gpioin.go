package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/pipeline"
)

// edgePin takes the times of edges, and matches them with the frames of a source.
type edgePin struct {
	line    inLine
	matcher *capture.Matcher
	pps     bool
	offset  atomic.Int64 // ns by which the machine's clock is ahead of the pulse per second
}

// newEdgePin matches by the configuration: a trigger's edges begin frames; of a pulse per second the nearest frame is taken.
func newEdgePin(c *GPIOConfig, name string, line inLine, period time.Duration) *edgePin {
	if name == ppsLine {
		return &edgePin{line: line, matcher: capture.NewMatcher(capture.MatcherConfig{Tolerance: period / 2}), pps: true}
	}
	return &edgePin{line: line, matcher: capture.NewMatcher(capture.MatcherConfig{
		Delay: c.TriggerIn.Delay.V, Tolerance: c.TriggerIn.Tolerance.V, Every: true,
	})}
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

// secondOffset is a time's distance from the nearest whole second, from -0.5 s on and below 0.5 s.
func secondOffset(t time.Time) time.Duration {
	off := time.Duration(t.Nanosecond())
	if off >= time.Second/2 {
		off -= time.Second
	}
	return off
}

// frame takes a frame's time.
func (p *edgePin) frame(f *pipeline.Frame) { p.matcher.Frame(f.Times) }

func (p *edgePin) close() error { return p.line.Close() }

func (p *edgePin) books() pinBooks {
	b := pinBooks{lost: p.line.Lost(), match: p.matcher.Stats()}
	if p.pps {
		b.pps = time.Duration(p.offset.Load())
	}
	return b
}
