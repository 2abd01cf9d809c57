// SPDX-License-Identifier: Apache-2.0

package pipeline_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// ramp is a source of five frames with memory for three. The first sample of each frame is its number.
type ramp struct {
	format pipeline.Format
	pool   *pipeline.Pool
}

func (r *ramp) Format() pipeline.Format { return r.format }

func (r *ramp) Status() pipeline.SourceStatus { return pipeline.SourceStatus{} }

func (r *ramp) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	for n := range 5 {
		f, err := r.pool.Wait(ctx) // waits until a lease is released
		if err != nil {
			return err
		}
		f.Sequence, f.Bytes[0] = uint64(n), byte(n)
		emit(f)
	}
	return nil
}

// negative is a stage that inverts pictures.
type negative struct{}

func (negative) Needs(pipeline.Format) (pipeline.StageNeeds, error) {
	return pipeline.StageNeeds{}, nil
}

func (negative) Plan(in pipeline.Format, want []pipeline.Format) error {
	for _, w := range want {
		if w != in {
			return fmt.Errorf("%v cannot be made of %v", w, in)
		}
	}
	return nil
}

func (negative) Process(_ context.Context, in *pipeline.Frame, outs []*pipeline.Frame) error {
	for _, out := range outs {
		if out != nil { // nil if no consumer wants that format of this frame
			for i, v := range in.Bytes {
				out.Bytes[i] = 255 - v
			}
		}
	}
	return nil
}

// printer is a sink that prints the first sample of each frame.
type printer struct{}

func (printer) Needs() pipeline.SinkNeeds { return pipeline.SinkNeeds{} }

func (printer) Run(ctx context.Context, q *pipeline.Queue) error {
	for {
		f, err := q.Next(ctx)
		if err != nil {
			return err // also at the normal end
		}
		fmt.Println("frame", f.Sequence, "begins with", f.Bytes[0])
		q.Done(f) // counts it as delivered, and releases the lease
	}
}

// heap allocates the slots of a stage's frames. On a board they would be memory that the GPU and the FPGA can access.
type heap struct{}

func (heap) AllocSlot(f pipeline.Format) (pipeline.Slot, error) {
	return pipeline.Slot{Bytes: make([]byte, f.Size())}, nil
}

// A graph connects a source, a stage and a sink, and runs until the source ends. Then the counts are exact: each
// captured frame was either delivered or dropped.
func Example() {
	format, err := pipeline.NewFormat(pipeline.Grey, 64, 48, pipeline.Rate{Num: 30, Den: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	source := &ramp{format: format, pool: pipeline.NewPool("ramp", format, []pipeline.Slot{
		{Bytes: make([]byte, format.Size())}, {Bytes: make([]byte, format.Size())}, {Bytes: make([]byte, format.Size())},
	}, nil)}

	graph := pipeline.NewGraph(pipeline.GraphConfig{Allocator: heap{}, Grace: time.Minute})
	if err := graph.AddSource("ramp", source); err != nil {
		fmt.Println(err)
		return
	}
	if err := graph.AddStage("negative", negative{}, "ramp", 3); err != nil {
		fmt.Println(err)
		return
	}
	output, err := graph.Attach(pipeline.OutputConfig{Name: "printer", Sink: printer{}, From: "negative", Depth: 5})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("run:", graph.Run(context.Background()))

	books := output.Stats()
	fmt.Println("captured", books.Captured, "delivered", books.Delivered, "dropped", books.Drops())
	fmt.Println("leases that are still out:", source.pool.Leased())
	fmt.Println("close:", graph.Close(), source.pool.Close())
	// Output:
	// frame 0 begins with 255
	// frame 1 begins with 254
	// frame 2 begins with 253
	// frame 3 begins with 252
	// frame 4 begins with 251
	// run: <nil>
	// captured 5 delivered 5 dropped 0
	// leases that are still out: 0
	// close: <nil> <nil>
}

// A format describes the layout of a frame in memory. An impossible format is rejected with the rule that it violates.
func ExampleNewFormat() {
	rate := pipeline.Rate{Num: 30000, Den: 1001}
	format, err := pipeline.NewFormat(pipeline.UYVY, 1920, 1080, rate)
	fmt.Println(format, err)
	fmt.Println(format.Size(), "bytes, every", rate.Period())
	_, err = pipeline.NewFormat(pipeline.UYVY, 1919, 1080, rate)
	fmt.Println(err)
	// Output:
	// UYVY 1920x1080 stride 3840 bt709-limited 30000/1001/s in host memory <nil>
	// 4147200 bytes, every 33.366666ms
	// impossible format: UYVY 1919x1080: 4:2:2 needs an even width
}
