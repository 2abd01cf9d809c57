// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"errors"
	"sync"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/kernel"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// flow is a source with all its consumers in their own graph. It can be stopped and reopened without the other flows.
type flow struct {
	name      string
	graph     *pipeline.Graph
	timestamp uint32 // the initial RTP timestamp, common to its streams

	mu        sync.Mutex // guards the next seven fields, and output.stream, against readers in other goroutines
	source    source
	panel     *controlPanel
	loops     []*controlLoop
	kernels   []namedKernel
	externals []namedExternal
	models    []namedModel
	outputs   []*output

	stages  []func() error // functions that close the stages
	closers []func() error // functions that close the source, in the order of opening
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when the graph has ended; nil before it runs
	err     error         // why it has ended, nil: without an error; read only after done is closed
}

// namedKernel is an open kernel.
type namedKernel struct {
	name string
	*kernel.Stage
}

// source is a source that must be closed.
type source interface {
	pipeline.Source
	Close() error
}

// stage is a stage that must be closed.
type stage interface {
	pipeline.Stage
	Close() error
}

// output is an output of a flow.
type output struct {
	name     string
	config   *config.Output       // with which it will be reopened
	from     string               // the source or stage that it reads from
	view     pipeline.Format      // its format for viewing; zero: it cannot be viewed
	viewFrom pipeline.PixelFormat // 0: the stage makes such pictures; otherwise they are made of its frames, which have these pixels
	attached *pipeline.Output
	stream   *stream        // nil: not RTP
	files    *cufile.Driver // nil: not a recording
	sends    string         // description of what it sends; empty: a general one for its kind is used
	free     func() error   // releases what the sink has opened or pinned; nil: nothing
}

// close releases the output's resources other than frames. The output must not be running.
func (o *output) close() error {
	free := o.free
	if o.free = nil; free == nil {
		return nil
	}
	return free()
}

// stream is an RTP output.
type stream struct {
	name   string
	config *config.RTP
	sink   *send.Sink
}

// start starts the flow, which runs until its graph ends, by itself or because ctx or f.cancel has cancelled it. Then
// the flow is sent to ended, unless over is closed.
func (f *flow) start(ctx context.Context, ended chan<- *flow, over <-chan struct{}) {
	ctx, f.cancel = context.WithCancelCause(ctx)
	f.done = make(chan struct{})
	controlled := f.control(ctx)
	go func() {
		f.err = f.graph.Run(ctx)
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
			f.err = errors.Join(f.err, cause)
		}
		f.cancel(nil)
		controlled()
		close(f.done)
		select { // ends: run closes over when it returns
		case ended <- f:
		case <-over:
		}
	}()
}

// ended reports whether the flow has run and ended.
func (f *flow) ended() bool {
	select {
	case <-f.done:
		return true
	default: // also if the flow has never run
		return false
	}
}

// stop ends the flow if it runs, and waits for its end.
func (f *flow) stop() {
	if f.done != nil {
		f.cancel(nil)
		<-f.done // ends: cancel has ended its context
	}
}

// control starts the loops, which run until ctx ends. wait returns when all have ended.
func (f *flow) control(ctx context.Context) (wait func()) {
	done := make(chan struct{}, len(f.loops))
	for _, c := range f.loops {
		go func() {
			c.Run(ctx, c.Stage)
			done <- struct{}{}
		}()
	}
	return func() {
		for range f.loops {
			<-done // ends: the flow has ended their context
		}
	}
}

// hasSamples reports whether the frames of the flow's source are a sensor's samples.
func (f *flow) hasSamples() bool {
	_, samples := f.source.Format().Pixel.Samples()
	return samples
}
