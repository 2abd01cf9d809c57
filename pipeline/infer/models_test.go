// SPDX-License-Identifier: Apache-2.0

package infer

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer/infertest"
	"github.com/tegracast/tegracast/pipeline/infer/postprocess"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
	"github.com/tegracast/tegracast/pipeline/share"
)

// work is the process that Work is.
func work(t Task, frames, reports *os.File) error {
	return Work(context.Background(), t, frames, reports, slog.New(slog.NewTextHandler(os.Stderr, nil)))
}

// A camera emits grey frames of 64 x 48 pixels until its context ends, each when the output has had the one before. It is
// also that output.
type camera struct {
	format  pipeline.Format
	pool    *pipeline.Pool
	seen    chan struct{}
	results chan []pipeline.Result
}

func (c *camera) Format() pipeline.Format { return c.format }

func (c *camera) Status() pipeline.SourceStatus { return pipeline.SourceStatus{Slots: c.pool.Len()} }

func (c *camera) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	for n := uint64(1); ; n++ {
		f, err := c.pool.Wait(ctx)
		if err != nil {
			return nil // the test ends
		}
		f.Sequence, f.Times.Captured = n, time.Now()
		emit(f)
		select {
		case <-c.seen:
		case <-ctx.Done():
			return nil
		}
	}
}

// output is the output of a camera.
type output struct{ *camera }

func (output) Needs() pipeline.SinkNeeds { return pipeline.SinkNeeds{} }

func (o output) Run(ctx context.Context, q *pipeline.Queue) error {
	for {
		f, err := q.Next(ctx)
		if err != nil {
			return err
		}
		select {
		case o.results <- append([]pipeline.Result(nil), f.Results...):
		default: // nobody looks
		}
		q.Done(f)
		select {
		case o.seen <- struct{}{}:
		case <-ctx.Done():
		}
	}
}

// film returns a stage whose process runs a model on frames, and the frames' results.
func film(t *testing.T, c Config) (*Stage, *camera) {
	t.Helper()
	memory, err := cudahost.Open(cudahost.Config{Backend: "host", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	f, err := pipeline.NewFormat(pipeline.Grey, 64, 48, pipeline.Rate{Num: 30, Den: 1})
	if err != nil {
		t.Fatal(err)
	}
	shared := share.StageConfig{Name: "model", Logger: slog.New(slog.DiscardHandler), Deadline: share.MaxDeadline}
	stage, err := NewStage(StageConfig{StageConfig: shared, Infer: c, Providers: []string{"cpu"}, Command: []string{"/proc/self/exe", "process", "work"}})
	if err != nil {
		t.Fatal(err)
	}
	var slots []pipeline.Slot
	for range shared.Holds(f.Rate) + 16 {
		b, err := memory.AllocHost(f.Size(), cudahost.Mapped|cudahost.Shared)
		if err != nil {
			t.Fatal(err)
		}
		file, offset := b.File()
		slots = append(slots, pipeline.Slot{Bytes: b.Bytes(), File: file, Offset: offset, Close: b.Close})
	}
	k := &camera{f, pipeline.NewPool("camera", f, slots, nil), make(chan struct{}), make(chan []pipeline.Result)}
	graph := pipeline.NewGraph(pipeline.GraphConfig{Logger: shared.Logger})
	if err := errors.Join(graph.AddSource("camera", k), graph.AddStage("model", stage, "camera", 4)); err != nil {
		t.Fatal(err)
	}
	if _, err := graph.Attach(pipeline.OutputConfig{Name: "front", From: "model", Sink: output{k}, Depth: 4}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- graph.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, stage.Close(), graph.Close(), k.pool.Close()); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return stage, k
}

// int64s returns an initializer with numbers.
func int64s(name string, numbers ...int64) []byte {
	var raw []byte
	for _, n := range numbers {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(n))
	}
	return infertest.Sub(infertest.FieldInitializer,
		infertest.Integer(1, int64(len(numbers))), infertest.Integer(2, int64(tensor.Int64)), infertest.Sub(8, name), infertest.Sub(9, raw))
}

// filled returns a node that makes a tensor of a shape, whose elements have a value.
func filled(shape, out string, kind tensor.Type, value []byte) []byte {
	constant := infertest.Sub(5, infertest.Integer(1, 1), infertest.Integer(2, int64(kind)), infertest.Sub(9, value))
	return infertest.Node(infertest.FieldNode, "ConstantOfShape", []string{shape}, []string{out},
		infertest.Sub(5, infertest.Sub(1, "value"), infertest.Integer(20, 4), constant))
}

func float(v float64) []byte {
	return binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(v)))
}

var picture = infertest.Value(infertest.FieldInput, "picture", tensor.Float32, 1, 1, 24, 32)

// hostile are models that ONNX Runtime loads or refuses, by what their frames get.
func hostile() map[string]struct {
	model   []byte
	kind    postprocess.Kind
	results func([]pipeline.Result) bool // nil: frames have no results
	reports string                       // in Status.Error; "": nothing
} {
	boxes := func(n int64, right float64) []byte {
		box := infertest.Sub(infertest.FieldInitializer, infertest.Integer(1, 1), infertest.Integer(1, 4), infertest.Integer(2, int64(tensor.Float32)),
			infertest.Sub(8, "box"), infertest.Sub(9, slices.Concat(float(1), float(2), float(right), float(12))))
		return infertest.Build(picture, box, int64s("times", n, 1), int64s("one", n),
			infertest.Value(infertest.FieldOutput, "boxes", tensor.Float32, "n", 4), infertest.Value(infertest.FieldOutput, "scores", tensor.Float32, "n"),
			infertest.Value(infertest.FieldOutput, "labels", tensor.Int64, "n"),
			infertest.Node(infertest.FieldNode, "Tile", []string{"box", "times"}, []string{"boxes"}), filled("one", "scores", tensor.Float32, float(0.75)),
			filled("one", "labels", tensor.Int64, make([]byte, 8)))
	}
	classes := func(value []byte, shape ...int64) []byte {
		return infertest.Build(picture, int64s("shape", shape...), infertest.Value(infertest.FieldOutput, "scores", tensor.Float32, "a", "b"),
			filled("shape", "scores", tensor.Float32, value))
	}
	type of = struct {
		model   []byte
		kind    postprocess.Kind
		results func([]pipeline.Result) bool
		reports string
	}
	none := func(r []pipeline.Result) bool { return len(r) == 1 && len(r[0].Regions) == 0 }
	many := func(r []pipeline.Result) bool {
		return len(r) == 1 && len(r[0].Regions) == 512 && r[0].Numbers[postprocess.LeftOut] == 100000-512
	}
	return map[string]of{
		"it is one":            {classes(float(1), 1, 4), postprocess.Classes, func(r []pipeline.Result) bool { return len(r) == 1 && r[0].Tags["class"] == "class 0" }, ""},
		"100000 boxes":         {boxes(100000, 10), postprocess.Detections, many, ""},
		"100000 empty boxes":   {boxes(100000, 1), postprocess.Detections, none, ""},
		"NaN for boxes":        {boxes(100, math.NaN()), postprocess.Detections, none, ""},
		"NaN for classes":      {classes(float(math.NaN()), 1, 4), postprocess.Classes, none, ""},
		"outputs of two":       {classes(float(1), 2, 4), postprocess.Classes, nil, "kind classes needs classes"},
		"no classes":           {classes(float(1), 1, 0), postprocess.Classes, none, ""},
		"a terabyte":           {classes(float(1), 1, 1<<38), postprocess.Classes, nil, "std::bad_alloc"},
		"more than it may use": {classes(float(1), 1, 1<<28), postprocess.Classes, nil, "std::bad_alloc"},
		"nothing":              {nil, postprocess.Classes, nil, "exit status 1"},
		"operators of others": {
			infertest.Build(picture, infertest.Value(infertest.FieldOutput, "scores", tensor.Float32, 1, 4),
				infertest.Node(infertest.FieldNode, "Evil", []string{"picture"}, []string{"scores"}, infertest.Sub(7, "evil.example"))),
			postprocess.Classes, nil, "evil.example",
		},
		"an operator that is none": {
			infertest.Build(picture, infertest.Value(infertest.FieldOutput, "scores", tensor.Float32, 1, 4),
				infertest.Node(infertest.FieldNode, "Evil", []string{"picture"}, []string{"scores"})),
			postprocess.Classes, nil, "No Op registered for Evil",
		},
	}
}

// TestHostileModels checks that no model does more than end its process, with a reason, and that frames go on.
func TestHostileModels(t *testing.T) {
	library := infertest.Library(t, infertest.Oldest, runtime.GOARCH)
	for name, x := range hostile() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "model.onnx")
			if err := os.WriteFile(path, x.model, 0o600); err != nil {
				t.Fatal(err)
			}
			s, k := film(t, Config{
				Model: path, Library: library, Threads: 1, Memory: 768 << 20, Every: 1,
				Input: Input{Scale: [3]float64{1, 1, 1}}, Output: Output{Kind: x.kind, Threshold: 0.1},
			})
			await(t, s, "it runs, or why it does not", func(st Status) bool {
				<-k.results // ends: frames come
				return st.State == Running && x.reports == "" || x.reports != "" && st.Error != ""
			})
			for tries := 0; ; tries++ {
				r := <-k.results // ends: frames come
				if x.results == nil && len(r) == 0 || x.results != nil && x.results(r) {
					break
				}
				if tries > 100 && len(r) > 0 || tries > 10000 {
					t.Fatalf("%+v\n%+v", r, s.Status())
				}
			}
			if st := s.Status(); !strings.Contains(st.Error, x.reports) || x.reports == "" && st.Error != "" {
				t.Errorf("%q, and must say %q", st.Error, x.reports)
			} else {
				t.Log(st.Error)
			}
		})
	}
}
