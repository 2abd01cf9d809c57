// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// eager is a stage that runs on a device, and so may be given memory that the CPU must not read.
type eager struct{ copier }

func (*eager) Needs(Format) (StageNeeds, error) { return StageNeeds{OnDevice: true}, nil }

// Stages and sinks that read only with the device may be given memory that the CPU must not read.
func TestReadersOnTheDevice(t *testing.T) {
	cam := newCamera(t, 12, 20, time.Millisecond)
	cam.format.Memory = MemoryWriteCombined
	g := NewGraph(GraphConfig{Allocator: &heap{}})
	if err := errors.Join(g.AddSource("cam", cam), g.AddStage("gpu", &eager{}, "cam", 2)); err != nil {
		t.Fatal(err)
	}
	pictures, results := &viewer{}, &viewer{needs: SinkNeeds{OnDevice: true}}
	for name, s := range map[string]*viewer{"gpu": pictures, "cam": results} {
		cfg := OutputConfig{Name: "of " + name, Sink: s, From: name}
		if name == "gpu" {
			cfg.Format = uyvy()
		}
		if _, err := g.Attach(cfg); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(g.Run(t.Context()), g.Close()); err != nil {
		t.Fatal(err)
	}
	pictures.check(t, "pictures", 20)
	results.check(t, "results", 20)
}

// A sink that requires a format gets it without further configuration, and accepts no other.
func TestSinkNeedsAFormat(t *testing.T) {
	r := newRig(t, newCamera(t, 12, 5, time.Millisecond), &copier{})
	v := &viewer{needs: SinkNeeds{Format: i420()}}
	r.attach(t, OutputConfig{Name: "small", Sink: v})
	_, err := r.Attach(OutputConfig{Name: "large", Sink: &viewer{needs: SinkNeeds{Format: i420()}}, Format: uyvy()})
	if !errors.Is(err, ErrNegotiation) || !strings.Contains(err.Error(), "the output itself does not accept UYVY") {
		t.Errorf("%v", err)
	}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.check(t, "small", 5)
}

// marker is a source that sets every field of its frames.
type marker struct{ *camera }

func (m marker) Run(ctx context.Context, emit func(*Frame)) error {
	return m.camera.Run(ctx, func(f *Frame) {
		f.Times.ExposureStart, f.Flags = f.Times.Captured.Add(-time.Millisecond), FlagPadded
		f.Results = append(f.Results, Result{Stage: "sensor"})
		emit(f)
	})
}

// inspector records which fields of a frame are wrong.
type inspector struct {
	viewer
	wrong []string
}

func (i *inspector) Run(ctx context.Context, q *Queue) error {
	for {
		f, err := q.Next(ctx)
		if err != nil {
			return err
		}
		if f.Times.Captured.IsZero() || f.Times.Captured.Sub(f.Times.ExposureStart) != time.Millisecond ||
			f.Flags != FlagPadded || len(f.Results) != 1 || f.Results[0].Stage != "sensor" || f.Bytes[0] != byte(f.Sequence) {
			i.wrong = append(i.wrong, f.Times.Captured.String())
		}
		q.Done(f)
	}
}

// The frames that stages make inherit the input's fields without the stage's help, once each, along a chain of stages.
func TestFieldsAreTheInputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{heap: &heap{}}
		r.Graph = NewGraph(GraphConfig{Allocator: r.heap})
		err := errors.Join(
			r.AddSource("cam", marker{newCamera(t, 12, 100, time.Millisecond)}), r.AddStage("isp", &copier{}, "cam", 3),
			r.AddStage("next", &follower{wants: uyvy(), copier: copier{fence: late{d: time.Millisecond}}}, "isp", 3))
		if err != nil {
			t.Fatal(err)
		}
		first, second := &inspector{}, &inspector{}
		r.attach(t, OutputConfig{Name: "first", Sink: first, From: "isp", Format: uyvy()})
		o := r.attach(t, OutputConfig{Name: "second", Sink: second, From: "next", Format: i420()})
		if err := errors.Join(r.Run(t.Context()), r.Close()); err != nil {
			t.Fatal(err)
		}
		if len(first.wrong) > 0 || len(second.wrong) > 0 || o.Stats().Delivered < 90 {
			t.Errorf("wrong: %v, %v; %+v", first.wrong, second.wrong, o.Stats())
		}
	})
}

// lines is a log.
type lines struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(b)
}

// picky is a sink that fails on some frames and returns its own error at the end.
type picky struct {
	viewer
	closed error
}

func (p *picky) Run(ctx context.Context, q *Queue) error {
	for {
		f, err := q.Next(ctx)
		if err != nil {
			return errors.Join(err, p.closed)
		}
		if f.Sequence%10 < 3 {
			q.Fail(f, DropSink, errors.New("no room"))
		} else {
			q.Done(f)
		}
	}
}

// Only the first of consecutive failures is logged, for outputs, stages and fences.
func TestFirstOfARowIsLogged(t *testing.T) {
	for _, c := range []struct {
		name  string
		stage *copier
		sink  Sink
		log   string // record of the first failure
		rows  int
	}{
		{"output", &copier{}, &picky{}, `msg="output fails" output=o "first at frame"=0 error="no room"`, 3},
		{"stage", &copier{fail: func(n uint64) error {
			if n%10 < 4 {
				return errors.New("bad frame")
			}
			return nil
		}}, &viewer{}, `msg="stage fails" stage=isp "first at frame"=0 error="bad frame"`, 3},
		{"fence", &copier{fence: failure{errors.New("no such kernel")}}, &viewer{}, `msg="stage fails" stage=isp "first at frame"=0 error="no such kernel"`, 1},
		{"nothing", &copier{}, &viewer{}, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &lines{}
				r := &rig{}
				r.Graph = NewGraph(GraphConfig{Allocator: &heap{}, Logger: slog.New(slog.NewTextHandler(log, nil))})
				if err := errors.Join(r.AddSource("cam", newCamera(t, 12, 30, time.Millisecond)), r.AddStage("isp", c.stage, "cam", 3)); err != nil {
					t.Fatal(err)
				}
				o := r.attach(t, OutputConfig{Name: "o", Sink: c.sink, Format: uyvy()})
				if err := errors.Join(r.Run(t.Context()), r.Close()); err != nil {
					t.Fatal(err)
				}
				balance(t, o.Stats())
				if n := strings.Count(log.String(), "fails"); n != c.rows || !strings.Contains(log.String(), c.log) {
					t.Errorf("%d lines, want %d:\n%s", n, c.rows, log)
				}
			})
		})
	}
}

// A sink may return the error of Queue.Next joined with its own: then only its own is reported.
func TestNormalEnd(t *testing.T) {
	for _, closed := range []error{nil, errors.New("cable pulled")} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, newCamera(t, 8, 10, time.Millisecond), &copier{})
			o := r.attach(t, OutputConfig{Name: "o", Sink: &picky{closed: closed}, Format: uyvy()})
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := ""
			if closed != nil {
				want = closed.Error()
			}
			if s := o.Stats(); s.Error != want {
				t.Errorf("the output ended with %q, want %q", s.Error, want)
			}
		})
	}
}
