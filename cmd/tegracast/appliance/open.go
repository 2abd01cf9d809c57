// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/control"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
)

// Open opens everything that a configuration describes; nothing runs yet. On an error it has closed what it had opened.
func Open(e Env, c *config.Appliance) (*Appliance, error) {
	a := newAppliance(e)
	c.FindPaths(context.Background())
	p := everything(c)
	p.patient = e.patient
	if err := a.open(c, p); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// open opens those parts of a configuration that p names.
func (a *Appliance) open(c *config.Appliance, p plan) error {
	a.text = c.Text
	a.setNames(c)
	if a.memory == nil {
		memory, err := cudahost.Open(cudahost.Config{Backend: c.Memory, Logger: a.env.Log})
		if err != nil {
			return c.MemoryAt.Errorf("%w", err)
		}
		a.memory = memory
		if gpu, ok := memory.(*cudahost.CUDA); ok {
			gpu.Device.Interrupt = a.env.interrupt
		}
	}
	if p.bus {
		if err := a.env.Bus.Open(c.Bus, stateOrCache("bus", "bus"), a.env.Log); err != nil {
			return err
		}
	}
	for i := range c.Lines { // the FPGA may need its reset
		if l := &c.Lines[i]; p.lines[l.Name] {
			if err := a.lines.Open(l); err != nil {
				return err
			}
		}
	}
	for i := range c.Sources {
		if s := &c.Sources[i]; p.flows[s.Name] {
			if err := a.addFlow(c, s); err != nil {
				return err
			}
		}
	}
	for i := range c.Outputs {
		if o := &c.Outputs[i]; p.outputs[o.Name] && !a.stopped(o.Name) {
			switch err := a.addOutput(o); {
			case err == nil:
				a.opened(o.Name)
			case !a.wait(o, err, p.patient):
				return err
			}
		}
	}
	return nil
}

// addFlow opens a source and its stages.
func (a *Appliance) addFlow(c *config.Appliance, s *config.Source) error {
	f := &flow{
		name: s.Name, timestamp: rand.Uint32(),
		graph: pipeline.NewGraph(pipeline.GraphConfig{Allocator: slotMemory{a.memory, stageFlags(s)}, Recorder: a.recorder, Logger: a.env.Log}),
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
	f.source, f.closers, f.panel = s, append(f.closers, s.Close), control.NewPanel(c.Name, s)
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

func (a *Appliance) addOutput(c *config.Output) error {
	f := a.flow(c.Source)
	want, own, err := c.Formats(f.source.Format())
	if err != nil {
		return err
	}
	o := &output{name: c.Name, config: c, from: c.From, view: c.View(f.source.Format())}
	sink, err := a.openSink(f, o, c, own)
	if err != nil {
		a.egress.Remove(c.Name)
		return err
	}
	o.attached, err = f.graph.Attach(pipeline.OutputConfig{
		Name: c.Name, Sink: sink, From: c.From, Format: want, Rate: c.Rate, Depth: c.Depth, Policy: c.Policy,
		Books: a.books[c.Name], Reopen: func(ctx context.Context) (pipeline.Sink, error) { return a.reopen(ctx, f, o, own) },
	})
	if err != nil {
		return errors.Join(c.At.Errorf("%w", oneLine{err}), a.closeOutput(o))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	f.outputs = append(f.outputs, o)
	return nil
}

// oneLine is an error whose text is one line.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "; ") }

func (e oneLine) Unwrap() error { return e.error }
