// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"errors"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/control"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// flow is a source with what reads from it, as a graph of its own: it can be stopped and opened again without the others.
type flow struct {
	name    string
	graph   *pipeline.Graph
	source  source
	outputs []*output

	timestamp uint32 // that its RTP streams begin at, all the same

	controllers []*control.Loop
	panel       *control.Panel
	kernels     []namedKernel

	stages  []func() error // close them
	closers []func() error // in the order of opening
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when the graph has ended; nil before it runs
	err     error         // why; read after done
}

// source is one that is closed after use.
type source interface {
	pipeline.Source
	Close() error
}

// stage is one that is closed after use.
type stage interface {
	pipeline.Stage
	Close() error
}

// output is one of a flow's.
type output struct {
	name     string
	config   *config.Output  // as it is opened again
	from     string          // the source or the stage that it reads from
	view     pipeline.Format // in which it is shown to people; zero: it cannot be shown
	attached *pipeline.Output
	stream   *stream      // nil: no RTP
	records  bool         // it is a recording
	free     func() error // gives back what the sink has opened or pinned; nil: nothing
}

// close gives back what the output holds besides frames. It does not run any more.
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

// start runs the flow until ctx ends; then ended hears of it, unless over has been closed.
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

// ended reports whether the flow has run and does not any more.
func (f *flow) ended() bool {
	select {
	case <-f.done:
		return true
	default: // also of a flow that has not run
		return false
	}
}

// stop ends the flow, if it runs, and waits for it.
func (f *flow) stop() {
	if f.done != nil {
		f.cancel(nil)
		<-f.done // ends: cancel has ended its context
	}
}
