// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/lines"
	"github.com/tegracast/tegracast/pipeline"
)

// flow is a source with what reads from it, as a graph of its own: it can be stopped and opened again without the others.
type flow struct {
	name    string
	graph   *pipeline.Graph
	source  source
	outputs []*output

	timestamp uint32 // that its RTP streams begin at, all the same

	controllers []*controller
	kernels     []namedKernel

	stages  []func() error // close them
	closers []func() error // in the order of opening
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when the graph has ended; nil before it runs
	err     error         // why; read after done
}

// addFlow opens a source and its stages.
func (a *Appliance) addFlow(c *config.Appliance, s *config.Source) error {
	f := &flow{
		name: s.Name, timestamp: rand.Uint32(),
		graph: pipeline.NewGraph(pipeline.GraphConfig{Allocator: slots{a.memory}, Recorder: a.recorder, Logger: a.env.Log}),
	}
	a.mu.Lock()
	a.flows = append(a.flows, f)
	a.mu.Unlock()
	if err := a.addSource(f, s); err != nil {
		return err
	}
	for i := range c.Stages {
		if c.Stages[i].Source != f.name {
			continue
		}
		if err := a.addStage(f, &c.Stages[i]); err != nil {
			return err
		}
	}
	return nil
}

func (a *Appliance) addSource(f *flow, c *config.Source) error {
	s, err := a.openSource(c)
	if err != nil {
		return err
	}
	a.mu.Lock() // the LED looks at the sources
	f.source, f.closers = s, append(f.closers, s.Close)
	a.mu.Unlock()
	return f.graph.AddSource(c.Name, s)
}

func (a *Appliance) addStage(f *flow, c *config.Stage) error {
	s, err := a.openStage(f, c)
	if err != nil {
		return err
	}
	f.stages = append(f.stages, s.Close)
	if err := f.graph.AddStage(c.Name, s, c.From, c.Depth); err != nil {
		return c.At.Errorf("%w", oneLine{err})
	}
	return nil
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
		select {
		case ended <- f:
		case <-over:
		}
	}()
}

// stop ends the flow, if it runs, and waits for it.
func (f *flow) stop() {
	if f.done != nil {
		f.cancel(nil)
		<-f.done
	}
}

// cameras are the sources that say what they are doing.
func (a *Appliance) cameras() []lines.Camera {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []lines.Camera
	for _, f := range a.flows {
		if c, ok := f.source.(lines.Camera); ok {
			list = append(list, c)
		}
	}
	return list
}

// dropFlow stops a flow, closes it and forgets it. When its GPU is lost it is left as it is.
func (a *Appliance) dropFlow(f *flow) error {
	f.stop()
	a.mu.Lock()
	outputs, stages := f.outputs, f.stages
	f.outputs, f.stages = nil, nil // when the GPU is lost this is not the last call
	a.mu.Unlock()
	var errs []error
	for _, o := range outputs { // some have pinned the graph's slots
		errs = append(errs, o.close())
	}
	for _, c := range slices.Backward(stages) { // before the slots, which a GPU may still write to
		err := c()
		errs = append(errs, err)
		if pipeline.DeviceLost(err) { // the driver may wait for ever in whatever comes next
			return errors.Join(errs...)
		}
	}
	errs = append(errs, f.graph.Close())
	for _, c := range slices.Backward(f.closers) {
		errs = append(errs, c())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.flows = slices.DeleteFunc(a.flows, func(x *flow) bool { return x == f })
	return errors.Join(errs...)
}

// dropOutput takes an output off its flow while that runs.
func (a *Appliance) dropOutput(ctx context.Context, f *flow, o *output) error {
	o.attached.Detach(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	f.outputs = slices.DeleteFunc(f.outputs, func(x *output) bool { return x == o })
	return o.close()
}

// dropCards closes the cards that are not in keep. Nothing may use them any more.
func (a *Appliance) dropCards(keep map[string]bool) error {
	var errs []error
	for name, closeCard := range a.devices {
		if !keep[name] {
			errs = append(errs, closeCard())
			a.mu.Lock()
			delete(a.devices, name)
			delete(a.cards, name)
			delete(a.models, name)
			a.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}
