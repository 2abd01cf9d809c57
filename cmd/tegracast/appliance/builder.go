// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/preview"
	"github.com/tegracast/tegracast/pipeline"
)

// A builder opens and closes flows and their outputs.
type builder struct {
	sources *sourceOpener
	stages  *stageOpener
	sinks   *sinkOpener
	flows   *flows
	views   *preview.Views
	ending  *shutdown // nil: the shutdown is not watched

	books  map[string]*pipeline.Books // statistics of the outputs that dropOutput has closed, by name
	reopen func(ctx context.Context, f *flow, o *output, own pipeline.Format) (pipeline.Sink, error)
}

// addFlow opens a source and its stages as a new flow. After an error the flow stays in the list with what was opened,
// for dropFlow.
func (b *builder) addFlow(c *config.Appliance, s *config.Source) error {
	f := &flow{name: s.Name, timestamp: rand.Uint32(), graph: b.sources.newGraph(s)}
	b.flows.add(f)
	if err := b.addSource(f, s); err != nil {
		return err
	}
	for i := range c.Stages {
		if c.Stages[i].Source != f.name {
			continue
		}
		if err := b.addStage(f, &c.Stages[i]); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) addSource(f *flow, c *config.Source) error {
	s, err := b.sources.open(c)
	if err != nil {
		return err
	}
	f.closers = append(f.closers, s.Close)
	f.mu.Lock() // the LED reads the source concurrently
	f.source, f.panel = s, newControlPanel(c.Name, s)
	f.mu.Unlock()
	return f.graph.AddSource(c.Name, s)
}

func (b *builder) addStage(f *flow, c *config.Stage) error {
	s, err := b.stages.open(f, c)
	if err != nil {
		return err
	}
	f.stages = append(f.stages, s.Close)
	if err := f.graph.AddStage(c.Name, s, c.From, c.Depth); err != nil {
		return c.At.Errorf("%w", oneLine{err})
	}
	return nil
}

func (b *builder) addOutput(c *config.Output) error {
	f := b.flows.find(c.Source)
	want, own, err := c.Formats(f.source.Format())
	if err != nil {
		return err
	}
	o := &output{name: c.Name, config: c, from: c.From}
	if o.view, o.viewFrom = c.View(f.source.Format()); o.viewFrom != 0 && !preview.Shows(o.viewFrom) {
		o.view = pipeline.Format{}
	}
	sink, err := b.sinks.open(f, o, c, own)
	if err != nil {
		b.sinks.streams.Remove(c.Name)
		return err
	}
	o.attached, err = f.graph.Attach(pipeline.OutputConfig{
		Name: c.Name, Sink: sink, From: c.From, Format: want, Rate: c.Rate, Depth: c.Depth, Policy: c.Policy,
		Books: b.books[c.Name], Reopen: func(ctx context.Context) (pipeline.Sink, error) { return b.reopen(ctx, f, o, own) },
	})
	if err != nil {
		return errors.Join(c.At.Errorf("%w", oneLine{err}), b.closeOutput(o))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.outputs = append(f.outputs, o)
	return nil
}

// dropFlow stops and closes a flow and removes it. If closing a stage shows that the GPU is lost, it leaves the graph
// and the source open, and the flow in the list.
func (b *builder) dropFlow(f *flow) error {
	f.stop()
	b.views.StopPictures(f, "")
	f.mu.Lock()
	outputs, stages := f.outputs, f.stages
	f.outputs, f.stages = nil, nil // if the GPU is lost, dropFlow is called again
	f.mu.Unlock()
	var errs []error
	for _, o := range outputs { // some have pinned the graph's slots
		b.ending.Step("output "+o.name, func() { errs = append(errs, b.closeOutput(o)) })
	}
	for _, c := range slices.Backward(stages) { // before the slots, to which a GPU may still write
		err := c()
		errs = append(errs, err)
		if pipeline.DeviceLost(err) { // any further driver call may block indefinitely
			return errors.Join(errs...)
		}
	}
	errs = append(errs, b.sources.storage.logHeld("graph of "+f.name, f.graph.Close()))
	for _, c := range slices.Backward(f.closers) {
		errs = append(errs, b.sources.storage.logHeld("source "+f.name, c()))
	}
	b.flows.remove(f)
	return errors.Join(errs...)
}

// dropOutput detaches an output from its flow, which may be running, and closes it. If ctx ends before the output has
// finished its current frame, the output is cancelled.
func (b *builder) dropOutput(ctx context.Context, f *flow, o *output) error {
	b.views.StopPictures(f, o.name)
	o.attached.Detach(ctx)
	b.books[o.name] = o.attached.Books()
	f.mu.Lock()
	f.outputs = slices.DeleteFunc(f.outputs, func(x *output) bool { return x == o })
	f.mu.Unlock()
	return b.closeOutput(o)
}

// closeOutput releases the resources of an output, and ends its readers' sessions if it is an RTP stream.
func (b *builder) closeOutput(o *output) error {
	err := o.close()
	b.sinks.streams.Remove(o.name)
	return err
}

// oneLine is an error whose text is a single line.
type oneLine struct{ error }

func (e oneLine) Error() string { return joinLines(e.error.Error()) }

func (e oneLine) Unwrap() error { return e.error }
