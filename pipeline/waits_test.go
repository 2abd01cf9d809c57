// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// patient is a camera that can wait: it emits as fast as slots become free.
type patient struct{ *camera }

func (p patient) Status() SourceStatus { return SourceStatus{Slots: p.pool.Len(), Waits: true} }

func (p patient) Run(ctx context.Context, emit func(*Frame)) error {
	for i := range p.frames {
		f, err := p.pool.Wait(ctx)
		if err != nil {
			return nil
		}
		f.Sequence, f.Bytes[0] = uint64(i), byte(i)
		emit(f)
	}
	return nil
}

// TestFramesThatWaitAreNotLost checks that no frame of a source that can wait is lost; outputs of both policies, a
// stage and a failing output set the pace.
func TestFramesThatWaitAreNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const frames = 50
		g := NewGraph(GraphConfig{Allocator: &heap{}})
		if err := errors.Join(g.AddSource("cam", patient{newCamera(t, 16, frames, 0)}), g.AddStage("isp", &copier{took: time.Millisecond}, "cam", 1)); err != nil {
			t.Fatal(err)
		}
		var sinks []*viewer
		for i, c := range []OutputConfig{
			{Name: "samples", From: "cam", Depth: 1, Policy: Block},
			{Name: "slow", From: "isp", Format: uyvy(), Depth: 1},
			{Name: "failing", From: "isp", Format: i420(), Depth: 1},
		} {
			v := &viewer{took: time.Duration(i*i) * 10 * time.Millisecond}
			if c.Name == "failing" {
				v.fail = errors.New("broken")
			}
			c.Sink, sinks = v, append(sinks, v)
			if _, err := g.Attach(c); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(g.Run(t.Context()), g.Close()); err != nil {
			t.Fatal(err)
		}
		sinks[0].check(t, "samples", frames)
		sinks[1].check(t, "slow", frames)
		for _, s := range g.Stats().Outputs[:2] {
			if balance(t, s); s.Drops() > 0 {
				t.Errorf("%s lost %v", s.Name, s.Dropped)
			}
		}
	})
}
