// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// groupie is a Member that gives a frame its sequence number plus 100, and writes down what it is told.
type groupie struct{ told []string }

func (m *groupie) Take(f *Frame, lost, damaged uint64) {
	f.Group = f.Sequence + 100
	m.told = append(m.told, fmt.Sprintf("%d lost %d damaged %d", f.Sequence, lost, damaged))
}

func (m *groupie) Finished(f *Frame, damaged bool) {
	m.told = append(m.told, fmt.Sprintf("%d of %d damaged %t", f.Sequence, f.Group, damaged))
}

func (m *groupie) Ended() { m.told = append(m.told, "ended") }

// reader is a sink that keeps the numbers of the groups, in a filling frame as soon as its first line has come.
type reader struct{ groups []uint64 }

func (*reader) Needs() SinkNeeds { return SinkNeeds{} }

func (r *reader) Run(ctx context.Context, q *Queue) error {
	for {
		f, err := q.NextFilling(ctx)
		if err != nil {
			return err
		}
		if _, err := f.WaitLines(ctx, 1); err == nil {
			r.groups = append(r.groups, f.Group)
		}
		if f.WaitWhole(ctx) == nil {
			q.Done(f)
		} else {
			q.Fail(f, DropDamaged, nil)
		}
	}
}

// refuser is a camera that refuses some of its frames, and loses others.
type refuser struct {
	*camera
	refused uint64
}

func (c *refuser) Status() SourceStatus {
	s := c.camera.Status()
	s.Refused = c.refused
	return s
}

func (c *refuser) Run(_ context.Context, emit func(*Frame)) error {
	for i, fate := range []string{"", "lost", "", "refused", "lost", "refused", "", "cut", "refused", "", "cut", "lost", ""} {
		time.Sleep(c.period)
		f := c.pool.Get()
		f.Sequence = uint64(i)
		switch fate {
		case "":
			emit(f)
			continue
		case "refused":
			c.refused++
		case "cut":
			f.Fill()
			f.Retain()
			emit(f)
			c.refused++
			f.Finish(errCRC)
		}
		f.Release()
	}
	return nil
}

// TestAMemberNumbersFrames checks that frames have their number before a consumer sees them, also those that are
// filling, that stages of each kind keep it, and that the member learns what became of each frame.
func TestAMemberNumbersFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, raw, lines, whole := &groupie{}, &reader{}, &reader{}, &reader{}
		g := NewGraph(GraphConfig{Allocator: &heap{}, Member: m})
		source := rolling{newCamera(t, 16, 4, time.Millisecond), func(i int) error {
			if i == 2 {
				return errCRC
			}
			return nil
		}}
		err := errors.Join(g.AddSource("cam", source), g.AddStage("isp", &liner{}, "cam", 2), g.AddStage("slow", &copier{}, "cam", 2))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []OutputConfig{
			{Name: "raw", Sink: raw, From: "cam"}, {Name: "lines", Sink: lines, From: "isp", Format: uyvy()}, {Name: "whole", Sink: whole, From: "slow", Format: uyvy()},
		} {
			if _, err := g.Attach(c); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(g.Run(t.Context()), g.Close()); err != nil {
			t.Fatal(err)
		}
		if all := fmt.Sprint(raw.groups, lines.groups, whole.groups); all != "[100 101 102 103] [100 101 102 103] [100 101 103]" {
			t.Error(all)
		}
		want := "0 lost 0 damaged 0, 0 of 100 damaged false, 1 lost 0 damaged 0, 1 of 101 damaged false, " +
			"2 lost 0 damaged 0, 2 of 102 damaged true, 3 lost 0 damaged 0, 3 of 103 damaged false, ended"
		if got := strings.Join(m.told, ", "); got != want {
			t.Errorf("%s\n%s", got, want)
		}
		told := &groupie{}
		g = NewGraph(GraphConfig{Member: told})
		if err := errors.Join(g.AddSource("cam", &refuser{camera: newCamera(t, 4, 0, time.Millisecond)}), g.Run(t.Context()), g.Close()); err != nil {
			t.Fatal(err)
		}
		want = "0 lost 0 damaged 0, 2 lost 1 damaged 0, 6 lost 1 damaged 2, 7 lost 0 damaged 0, 7 of 107 damaged true, 9 lost 0 damaged 1, " +
			"10 lost 0 damaged 0, 10 of 110 damaged true, 12 lost 1 damaged 0, ended"
		if got := strings.Join(told.told, ", "); got != want {
			t.Errorf("%s\n%s", got, want)
		}
	})
}
