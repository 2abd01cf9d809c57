// SPDX-License-Identifier: Apache-2.0

package share

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
)

// A theatre is a camera, a Stage, and an output behind it that keeps the results of all frames.
type theatre struct {
	*studio
	stage *Stage

	mu   sync.Mutex
	seen []pipeline.Result // those of the stage; a zero Result for a frame without
	seqs []uint64
}

// Needs implements pipeline.Sink.
func (s *theatre) Needs() pipeline.SinkNeeds { return pipeline.SinkNeeds{} }

// Run implements pipeline.Sink.
func (s *theatre) Run(ctx context.Context, q *pipeline.Queue) error {
	for {
		f, err := q.Next(ctx)
		if err != nil {
			return err
		}
		var r pipeline.Result
		for _, x := range f.Results {
			if x.Stage == "model" {
				r = x
			}
		}
		s.mu.Lock()
		s.seen, s.seqs = append(s.seen, r), append(s.seqs, f.Sequence)
		s.mu.Unlock()
		q.Done(f)
	}
}

// newTheatre makes a theatre with frames of 64 x 48 grey samples in shared memory, at no fixed rate.
func newTheatre(t testing.TB, c StageConfig) *theatre {
	t.Helper()
	memory, err := cudahost.Open(cudahost.Config{Backend: "host", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	f, err := pipeline.NewFormat(pipeline.Grey, 64, 48, pipeline.Rate{})
	if err != nil {
		t.Fatal(err)
	}
	c.Name, c.Socket, c.Logger = "model", filepath.Join(t.TempDir(), "s"), slog.New(slog.DiscardHandler)
	var slots []pipeline.Slot
	for range c.Holds(f.Rate) + 140 {
		b, err := memory.AllocHost(f.Size(), cudahost.Mapped|cudahost.Shared)
		if err != nil {
			t.Fatal(err)
		}
		file, offset := b.File()
		slots = append(slots, pipeline.Slot{Bytes: b.Bytes(), File: file, Offset: offset, Close: b.Close})
	}
	stage, err := NewStage(c)
	if err != nil {
		t.Fatal(err)
	}
	s := &theatre{stage: stage, studio: &studio{t: t, done: make(chan error, 1)}}
	s.camera = &camera{f, pipeline.NewPool("camera", f, slots, nil), make(chan func(*pipeline.Frame))}
	graph := pipeline.NewGraph(pipeline.GraphConfig{Logger: c.Logger, Grace: time.Minute})
	if err := errors.Join(graph.AddSource("camera", s.camera), graph.AddStage("model", stage, "camera", 64)); err != nil {
		t.Fatal(err)
	}
	if s.output, err = graph.Attach(pipeline.OutputConfig{Name: "front", From: "model", Sink: s, Depth: 64}); err != nil {
		t.Fatal(err)
	}
	s.sink = stage.sink.Load()
	go func() { s.done <- graph.Run(context.Background()) }()
	<-graph.Started()
	t.Cleanup(func() {
		close(s.camera.next)
		if err := errors.Join(<-s.done, stage.Close(), graph.Close(), s.camera.pool.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// seenOf waits until the output has had n frames, and returns the results of all.
func (s *theatre) seenOf(n int) []pipeline.Result {
	s.t.Helper()
	await(s.t, fmt.Sprintf("%d frames", n), func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.seen) >= n })
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, seq := range s.seqs {
		if seq != uint64(i+1) {
			s.t.Fatalf("frame %d after %d others", seq, i)
		}
	}
	return s.seen
}

func (s *theatre) dial(policy pipeline.Policy) *Client {
	s.t.Helper()
	k, err := Dial(s.t.Context(), ClientConfig{Socket: s.stage.config.Socket, Policy: policy, Answers: true})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = k.Close() })
	await(s.t, "it is connected", func() bool { return len(s.stage.Stats().Consumers) == 1 })
	return k
}

// TestResultsReachTheirFrame checks that each frame gets the results that were returned for it, in any order, with all
// that a result may contain.
func TestResultsReachTheirFrame(t *testing.T) {
	s := newTheatre(t, StageConfig{Frames: 4, Deadline: MaxDeadline})
	k := s.dial(pipeline.Block)
	await(t, "it is ready", func() bool { return s.sink.consumersReady() })
	began := time.Unix(1700000000, 3)
	tensors := []pipeline.Tensor{
		{Name: "scores", Type: "float32", Shape: []int{1, 2}, Data: []byte{1, 2, 3, 4, 5, 6, 7, 8}}, {Name: "none", Type: "uint8", Shape: []int{0}, Data: []byte{}},
	}
	random, n := rand.New(rand.NewPCG(1, 2)), 0
	for range 50 {
		var held []*SharedFrame
		for range 4 {
			s.camera.next <- func(*pipeline.Frame) {}
			held = append(held, next(t, k))
			n++
		}
		random.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
		for _, f := range held {
			if f.Bytes[0] != byte(f.Sequence) {
				t.Fatalf("frame %d has the pixels of another", f.Sequence)
			}
			r := pipeline.Result{
				Stage: "forged", Began: began, Ended: began.Add(5), Numbers: map[string]float64{"frame": float64(f.Sequence)}, Bins: []uint32{1, 2},
				Regions: []pipeline.Region{
					{X: 1, Y: 2, Width: 3, Height: 4, Label: "<script>\x00é", Score: .5}, {X: 63, Y: 47, Width: 9, Height: 9}, {X: 64, Width: 1, Height: 1},
				},
				Tags:    map[string]string{"scene": "night"},
				Tensors: tensors,
			}
			if err := errors.Join(f.Respond(r), f.Release()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, r := range s.seenOf(n) {
		want := pipeline.Result{
			Stage: "model", Began: began, Ended: began.Add(5), Numbers: map[string]float64{"frame": float64(i + 1)}, Bins: []uint32{1, 2},
			Regions: []pipeline.Region{{X: 1, Y: 2, Width: 3, Height: 4, Label: "<script>\x00é", Score: .5}, {X: 63, Y: 47, Width: 1, Height: 1}},
			Tags:    map[string]string{"scene": "night"},
			Tensors: tensors,
		}
		if !reflect.DeepEqual(r, want) {
			t.Fatalf("frame %d has\n%+v, want\n%+v", i+1, r, want)
		}
	}
	if st := s.stage.Stats(); st.Answered != uint64(n) || st.Without+st.Late != 0 || st.Latency.Count != uint64(n) {
		t.Errorf("%+v", st)
	}
}

// TestFramesGoOnWithoutResults checks that frames without results are passed on, and in order: without a process, when
// it is busy, does not answer, gives frames back without results, or ends. Results that come too late are counted.
func TestFramesGoOnWithoutResults(t *testing.T) {
	s := newTheatre(t, StageConfig{Frames: 2, Deadline: 30 * time.Millisecond})
	emit := func() { s.camera.next <- func(*pipeline.Frame) {} }
	emit()
	s.seenOf(1)
	k := s.dial(pipeline.Latest)
	for range 3 { // it does not ask: the first two are superseded, the third one waits until the deadline
		emit()
	}
	s.seenOf(4)
	got := make(chan *SharedFrame, 1)
	go func() { got <- next(t, k) }()
	await(t, "it asks", func() bool { return s.sink.consumersReady() })
	emit()
	f := <-got
	s.seenOf(5) // after the deadline
	if err := errors.Join(f.Respond(pipeline.Result{}), f.Release()); err != nil {
		t.Fatal(err)
	}
	await(t, "the late result is counted", func() bool { return s.stage.Stats().Late == 1 })
	if st := s.stage.Stats(); st.Answered != 0 || st.Without != 5 || st.Lost != 3 {
		t.Errorf("%+v", st)
	}
	for i, r := range s.seenOf(5) {
		if r.Stage != "" {
			t.Errorf("frame %d has %+v", i+1, r)
		}
	}
}

// TestEndsBeforeTheDeadline checks that frames do not wait for the deadline once it is known that no results will come:
// the process gives the frame back, or dies. The deadline is so long that the test would fail.
func TestEndsBeforeTheDeadline(t *testing.T) {
	s := newTheatre(t, StageConfig{Frames: 2, Deadline: MaxDeadline})
	begin := time.Now()
	for n := 1; n <= 100; n++ {
		k := s.dial(pipeline.Block)
		await(t, "it is ready", func() bool { return s.sink.consumersReady() })
		s.camera.next <- func(*pipeline.Frame) {}
		f := next(t, k)
		if n%2 == 0 {
			if err := f.Release(); err != nil {
				t.Fatal(err)
			}
			s.seenOf(n)
		}
		if err := k.Close(); err != nil {
			t.Fatal(err)
		}
		s.seenOf(n)
		await(t, "it has gone", func() bool { return len(s.stage.Stats().Consumers) == 0 })
	}
	if d := time.Since(begin); d > 50*MaxDeadline {
		t.Errorf("100 frames took %v: they waited for the deadline", d)
	}
	if st := s.stage.Stats(); st.Without != 100 || st.Gone != 100 {
		t.Errorf("%+v", st)
	}
}

// TestFramesWithoutResultsAreDropped checks Drop.
func TestFramesWithoutResultsAreDropped(t *testing.T) {
	s := newTheatre(t, StageConfig{Frames: 1, Deadline: MaxDeadline, Drop: true})
	k := s.dial(pipeline.Block)
	await(t, "it is ready", func() bool { return s.sink.consumersReady() })
	for n := range 10 {
		s.camera.next <- func(*pipeline.Frame) {}
		f := next(t, k)
		if n%2 == 0 {
			if err := f.Respond(pipeline.Result{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Release(); err != nil {
			t.Fatal(err)
		}
		await(t, "it is ready", func() bool { return s.sink.consumersReady() })
	}
	await(t, "half of them are dropped", func() bool { st := s.output.Stats(); return st.Delivered == 5 && st.Dropped["model/stage"] == 5 })
}

// TestSourceThatWaits checks that frames of a source that waits for its consumers wait until the process is ready.
func TestSourceThatWaits(t *testing.T) {
	const frames = 60
	s := newTheatre(t, StageConfig{Frames: 1, Deadline: MaxDeadline, Waits: true})
	k := s.dial(pipeline.Latest)
	for range frames {
		s.camera.next <- func(*pipeline.Frame) {}
	}
	for range frames {
		f := next(t, k)
		if err := errors.Join(f.Respond(pipeline.Result{}), f.Release()); err != nil {
			t.Fatal(err)
		}
	}
	s.seenOf(frames)
	if st := s.stage.Stats(); st.Answered != frames || st.Lost > 0 {
		t.Errorf("%+v", st)
	}
}

// TestWrongResults checks that a process that returns invalid results, or results for a frame that it does not have, is
// told why and disconnected, and that the frames go on.
func TestWrongResults(t *testing.T) {
	s := newTheatre(t, StageConfig{Frames: 1, Deadline: MaxDeadline})
	tensor := func(kind, shape, data string) string {
		return fmt.Sprintf(`{"tensors":[{"name":"a","type":%q,"shape":%s,"data":%q}]}`, kind, shape, data)
	}
	n := 0
	for _, c := range []struct{ text, says string }{
		{"", "EOF"},
		{"[]", "cannot unmarshal array"},
		{`{"region":[]}`, `unknown field "region"`},
		{`{"stage":"camera"}`, `unknown field "stage"`},
		{`{} {}`, "more text"},
		{"{\"tags\":{\"a\":\"\xff\"}}", "UTF-8"},
		{`{"numbers":{"a":1e999}}`, "cannot unmarshal number"},
		{`{"bins":[-1]}`, "cannot unmarshal number"},
		{`{"regions":[` + strings.Repeat("{},", maxRegions) + `{}]}`, "513 regions"},
		{`{"regions":[{"label":"` + strings.Repeat("x", 257) + `"}]}`, "label of region 0"},
		{`{"tags":{"a":"` + strings.Repeat("x", 1025) + `"}}`, "text of 1025 bytes"},
		{tensor("float31", "[1]", "AAAA"), `type "float31"`},
		{tensor("float32", "[2]", "AAAA"), "has 8 bytes, and there are 3"},
		{tensor("uint8", "[-1,-3]", "AAAA"), "negative"},
		{tensor("float32", "[4611686018427387904]", ""), "too large"},
		{tensor("uint8", "[65536,65536,65536,65536]", ""), "too large"},
		{tensor("uint8", "[1,1,1,1,1,1,1,1,3]", "AAAA"), "at most 8 dimensions"},
		{tensor("uint8", "[3]", "A*AA"), "base64"},
	} {
		k := s.dial(pipeline.Block)
		await(t, "it is ready", func() bool { return s.sink.consumersReady() })
		s.camera.next <- func(*pipeline.Frame) {}
		f := next(t, k)
		a := answer{lease: f.lease, text: []byte(c.text)}
		if err := k.send(a.append(nil)); err != nil {
			t.Fatal(err)
		}
		err := f.Release() // may be too early for the end, and may come after it
		for err == nil {
			_, err = k.Next(t.Context())
		}
		var end *EndError
		if !errors.As(err, &end) || end.Code != CodeBroken || !strings.Contains(end.Reason, c.says) || !strings.Contains(end.Reason, fmt.Sprintf("frame %d", f.Sequence)) {
			t.Errorf("%.60s: %v, want %q", c.text, err, c.says)
		}
		n++
		s.seenOf(n)
		await(t, "it has gone", func() bool { return len(s.stage.Stats().Consumers) == 0 })
	}
	if st := s.stage.Stats(); st.Answered != 0 || st.Without != uint64(n) {
		t.Errorf("%+v", st)
	}
}

// TestTheLongestResult checks that a stage takes results of MaxResult bytes, and no longer ones.
func TestTheLongestResult(t *testing.T) {
	s := newTheatre(t, StageConfig{Frames: 1, Deadline: MaxDeadline})
	k := s.dial(pipeline.Block)
	for n, more := range []int{0, 1} {
		r := pipeline.Result{Tags: map[string]string{}}
		for i := range 48 {
			r.Tags[fmt.Sprintf("%02d", i)] = strings.Repeat("x", 1000)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		r.Tags["00"] += strings.Repeat("x", MaxResult-len(text)+more-len(`,"more":""`))
		r.Tags["more"] = ""
		for name := range r.Tags { // to at most maxTag bytes each
			for len(r.Tags["00"]) > maxTag && len(r.Tags[name]) < maxTag && name != "00" {
				r.Tags["00"], r.Tags[name] = r.Tags["00"][1:], r.Tags[name]+"x"
			}
		}
		await(t, "it is ready", func() bool { return s.sink.consumersReady() })
		s.camera.next <- func(*pipeline.Frame) {}
		f := next(t, k)
		if err := errors.Join(f.Respond(r), f.Release()); err != nil && !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
		if got := s.seenOf(n + 1)[n]; (got.Tags != nil) != (more == 0) {
			t.Errorf("%d bytes too long: the frame has %d tags", more, len(got.Tags))
		}
	}
}

// TestResultsForOtherLeases checks results without a frame, for a frame that was given back, and twice for one.
func TestResultsForOtherLeases(t *testing.T) {
	s := newTheatre(t, StageConfig{Frames: 2, Deadline: MaxDeadline})
	for n, lie := range []func(*SharedFrame) error{
		func(f *SharedFrame) error { f.lease += 7; return f.Respond(pipeline.Result{}) },
		func(f *SharedFrame) error {
			return errors.Join(f.Respond(pipeline.Result{}), f.Respond(pipeline.Result{}))
		},
		func(f *SharedFrame) error { return errors.Join(f.Release(), f.Respond(pipeline.Result{})) },
		func(f *SharedFrame) error { return f.client.send(make([]byte, answerSize+maxAnswer+1)) },
		func(f *SharedFrame) error {
			a := answer{lease: f.lease, text: make([]byte, maxAnswer+1)}
			return f.client.send(a.append(nil))
		},
		func(f *SharedFrame) error { return f.client.send([]byte{kindAnswer, 0, 0, 0, 0, 0, 0, 0}) },
	} {
		k := s.dial(pipeline.Block)
		await(t, "it is ready", func() bool { return s.sink.consumersReady() })
		s.camera.next <- func(*pipeline.Frame) {}
		if err := lie(next(t, k)); err != nil && !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
		var end *EndError
		if _, _, err := k.receive(t.Context()); !errors.Is(err, ErrClosed) || errors.As(err, &end) && end.Code != CodeBroken {
			t.Errorf("lie %d: %v", n, err)
		}
		s.seenOf(n + 1)
		await(t, "it has gone", func() bool { return len(s.stage.Stats().Consumers) == 0 })
	}
}

// TestWhoConnectsWhere checks that a process that returns results is refused by an output, and one that does not by a
// stage, and that a stage takes one process at a time.
func TestWhoConnectsWhere(t *testing.T) {
	refused := func(socket string, answers bool, code Code, says string) {
		t.Helper()
		_, err := Dial(t.Context(), ClientConfig{Socket: socket, Answers: answers})
		var end *EndError
		if !errors.As(err, &end) || end.Code != code || !strings.Contains(end.Reason, says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	o, s := newStudio(t, Config{Consumers: 1, Frames: 1}), newTheatre(t, StageConfig{})
	refused(o.sink.cfg.Socket, true, CodeRefused, "external stage")
	refused(s.stage.config.Socket, false, CodeRefused, "subscribe with them")
	s.dial(pipeline.Latest)
	refused(s.stage.config.Socket, true, CodeBusy, "another process")
}

// newUnconnected returns a planned stage whose process the program starts. It is closed at the end of the test.
func newUnconnected(t *testing.T) *Stage {
	t.Helper()
	f, err := pipeline.NewFormat(pipeline.Grey, 64, 48, pipeline.Rate{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewStage(StageConfig{Name: "model", Logger: slog.New(slog.DiscardHandler)})
	if err = errors.Join(err, s.Plan(f, nil)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, os.ErrClosed) { // a test may have closed it
			t.Error(err)
		}
	})
	return s
}

// TestConnectWhileTheStageEnds connects a process while the stage is closed: it is refused, or its connection ends.
func TestConnectWhileTheStageEnds(t *testing.T) {
	for range 50 {
		s := newUnconnected(t)
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		theirs, err := s.Connect("a process")
		if err == nil {
			var p *Client
			if p, err = Dial(t.Context(), ClientConfig{Conn: theirs, Answers: true}); err == nil {
				_, err = p.Next(t.Context())
				err = errors.Join(err, p.Close())
			}
		}
		if !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
	}
}

// FuzzResult checks that a result from a consumer is either rejected or one that JSON can represent, within the limits and the frame.
func FuzzResult(f *testing.F) {
	f.Add([]byte(`{"regions":[{"x":1e300,"y":-1e300,"width":1e308,"height":1e308,"label":"a","score":-1}],"numbers":{"a":1},"bins":[1],"tags":{"b":"c"}}`))
	f.Add([]byte(`{"tensors":[{"name":"a","type":"float16","shape":[1,2],"data":"AAAAAA=="}]}`))
	format, err := pipeline.NewFormat(pipeline.UYVY, 64, 48, pipeline.Rate{Num: 30, Den: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parseResult(text, format)
		if err != nil {
			return
		}
		for _, x := range r.Regions {
			if x.X < 0 || x.Y < 0 || x.Width <= 0 || x.Height <= 0 || x.X+x.Width > 64 || x.Y+x.Height > 48 || x.Score < 0 || x.Score > 1 {
				t.Errorf("%+v", x)
			}
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
	})
}

// FuzzAnswer checks that results from a consumer are either rejected or encode to the same bytes again.
func FuzzAnswer(f *testing.F) {
	a := answer{lease: 3, began: time.Unix(1, 2), text: []byte("{}")}
	f.Add(a.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := parseAnswer(b); err == nil && string(a.append(nil)) != string(b) {
			t.Errorf("%x is %+v", b, a)
		}
	})
}

// consumersReady reports whether the sink has a consumer that may get a frame.
func (k *Sink) consumersReady() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hearAll()
	return len(k.consumers) == 1 && k.consumers[0].credits > 0
}
