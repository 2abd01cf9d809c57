// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"errors"
	"slices"

	"github.com/tegracast/tegracast/pipeline"
)

// Close gives back what was opened. Nothing may run.
func (a *Appliance) Close() error {
	a.changing.Lock() // somebody may still take a picture
	defer a.changing.Unlock()
	var errs []error
	do := func(what string, closes func() error) {
		a.ending.Step(what, func() { errs = append(errs, closes()) })
	}
	for _, f := range slices.Backward(slices.Clone(a.flows)) {
		do("source "+f.name, func() error { return a.dropFlow(f) })
	}
	do("the message bus", a.env.Bus.Close)
	do("the FPGAs", func() error { return a.dropCards(nil) })
	do("the GPIO lines", func() error { return a.lines.Close(nil) })
	do("the driver of files", a.dropStorage)
	do("the memory of frames", a.dropMemory)
	return errors.Join(errs...)
}

// dropFlow stops a flow, closes it and forgets it. When its GPU is lost it is left as it is.
func (a *Appliance) dropFlow(f *flow) error {
	f.stop()
	a.views.End(f, "")
	a.mu.Lock()
	outputs, stages := f.outputs, f.stages
	f.outputs, f.stages = nil, nil // when the GPU is lost this is not the last call
	a.mu.Unlock()
	var errs []error
	for _, o := range outputs { // some have pinned the graph's slots
		a.ending.Step("output "+o.name, func() { errs = append(errs, a.closeOutput(o)) })
	}
	for _, c := range slices.Backward(stages) { // before the slots, which a GPU may still write to
		err := c()
		errs = append(errs, err)
		if pipeline.DeviceLost(err) { // the driver may wait for ever in whatever comes next
			return errors.Join(errs...)
		}
	}
	errs = append(errs, a.unheld("graph of "+f.name, f.graph.Close()))
	for _, c := range slices.Backward(f.closers) {
		errs = append(errs, a.unheld("source "+f.name, c()))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.flows = slices.DeleteFunc(a.flows, func(x *flow) bool { return x == f })
	return errors.Join(errs...)
}

// dropOutput takes an output off its flow while that runs.
func (a *Appliance) dropOutput(ctx context.Context, f *flow, o *output) error {
	a.views.End(f, o.name)
	o.attached.Detach(ctx)
	a.books[o.name] = o.attached.Books()
	a.mu.Lock()
	defer a.mu.Unlock()
	f.outputs = slices.DeleteFunc(f.outputs, func(x *output) bool { return x == o })
	return a.closeOutput(o)
}

// closeOutput gives back what an output holds, which is not opened again.
func (a *Appliance) closeOutput(o *output) error {
	err := o.close()
	a.egress.Remove(o.name)
	return err
}

// dropCards closes the cards that are not in keep. Nothing may use them any more.
func (a *Appliance) dropCards(keep map[string]bool) error {
	var errs []error
	for name, closeCard := range a.devices {
		if !keep[name] {
			errs = append(errs, a.unheld("card "+name, closeCard()))
			a.mu.Lock()
			delete(a.devices, name)
			delete(a.cards, name)
			delete(a.models, name)
			a.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

// dropMemory closes the back end; all that was made of it has been closed.
func (a *Appliance) dropMemory() error {
	if a.memory == nil {
		return nil
	}
	err := a.memory.Close()
	a.memory = nil
	return err
}
