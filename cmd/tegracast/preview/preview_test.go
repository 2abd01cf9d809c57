// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// stamp is an encoder whose files consist of the frame's number. It refuses frame 3.
type stamp struct{}

func (stamp) Close() error { return nil }

func (stamp) Encode(dst []byte, f *pipeline.Frame) ([]byte, error) {
	if f.Sequence == 3 {
		return dst, errors.New("three")
	}
	return append(dst, byte(f.Sequence)), nil
}

// camera emits frames with the numbers that it receives.
type camera struct {
	format  pipeline.Format
	numbers chan uint64
	results []pipeline.Result // of each frame
}

// Format implements pipeline.Source.
func (c *camera) Format() pipeline.Format { return c.format }

// Status implements pipeline.Source.
func (c *camera) Status() pipeline.SourceStatus { return pipeline.SourceStatus{} }

// Run implements pipeline.Source.
func (c *camera) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	pool := pipeline.NewPool("camera", c.format, []pipeline.Slot{{Bytes: make([]byte, c.format.Size())}}, nil)
	for n := range c.numbers {
		f, err := pool.Wait(ctx)
		if err != nil {
			return err
		}
		f.Sequence, f.Results = n, append(f.Results, c.results...)
		emit(f)
	}
	return nil
}

// awaitAsked waits until a viewer waits for a picture.
func (s *Sink) awaitAsked() {
	for !s.isAsked() {
		time.Sleep(time.Millisecond)
	}
}

// TestNewestPicture checks that a viewer gets each picture once and learns of the end, that a frame that cannot be encoded
// is counted and followed by the next one, and that a frame that no viewer waits for is not encoded.
func TestNewestPicture(t *testing.T) {
	format, err := pipeline.NewFormat(pipeline.I420, 16, 16, pipeline.Rate{Num: 30, Den: 1})
	if err != nil {
		t.Fatal(err)
	}
	g := pipeline.NewGraph(pipeline.GraphConfig{Logger: slog.New(slog.DiscardHandler)})
	c, s := &camera{format: format, numbers: make(chan uint64)}, New(format, stamp{})
	if err := g.AddSource("camera", c); err != nil {
		t.Fatal(err)
	}
	o, err := g.Attach(pipeline.OutputConfig{Name: "view", Sink: s})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- g.Run(t.Context()) }()
	var last *Picture
	for _, n := range []uint64{1, 2, 4} {
		shown := make(chan *Picture, 1)
		go func() {
			p, err := s.Next(t.Context(), last)
			if err != nil {
				t.Error(err)
			}
			shown <- p
		}()
		s.awaitAsked()
		if n == 4 {
			c.numbers <- 3
		}
		c.numbers <- n
		if last = <-shown; last == nil || last.Sequence != n || last.JPEG[0] != byte(n) {
			t.Fatalf("picture %d: %+v", n, last)
		}
		if p, err := s.Next(t.Context(), nil); err != nil || p != last {
			t.Fatalf("the newest picture is %+v, %v", p, err)
		}
	}
	c.numbers <- 5 // nobody waits
	close(c.numbers)
	if err := errors.Join(<-ended, g.Close()); err != nil {
		t.Error(err)
	}
	if _, err := s.Next(t.Context(), nil); !errors.Is(err, ErrEnded) {
		t.Error(err)
	}
	if s.newest != last {
		t.Errorf("a frame was encoded for nobody: %+v", s.newest)
	}
	if st := o.Stats(); st.Delivered != 4 || st.Dropped["view/sink"] != 1 {
		t.Errorf("%+v", st)
	}
}

// TestLookingEnds checks that Next returns when the context ends.
func TestLookingEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New(pipeline.Format{}, stamp{}).Next(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
