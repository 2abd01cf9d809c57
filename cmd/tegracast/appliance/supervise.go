// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline"
)

// reopen opens an output again that has failed, between two reloads.
func (a *Appliance) reopen(ctx context.Context, f *flow, o *output, own pipeline.Format) (pipeline.Sink, error) {
	opened := make(chan pipeline.Sink, 1)
	if err := a.ask(ctx, func(context.Context) (result, fatal error) {
		if err := o.close(); err != nil {
			a.env.Log.Warn("an output that failed was closed with errors", "output", o.name, "error", err)
		}
		next := &output{name: o.name, from: o.from, view: o.view, config: o.config}
		sink, err := a.openSink(f, next, o.config, own)
		if err != nil {
			next.free, next.stream = nil, nil
		}
		a.mu.Lock()
		o.free, o.stream = next.free, next.stream
		a.mu.Unlock()
		if o.stream != nil {
			a.describeAgain()
		}
		opened <- sink
		return err, nil
	}); err != nil {
		return nil, err
	}
	return <-opened, nil // ends: the function has put a value there
}

// describeAgain writes the streams' descriptions again.
func (a *Appliance) describeAgain() {
	if a.describes == nil {
		return
	}
	if err := a.describes(); err != nil {
		a.env.Log.Warn("the descriptions of the streams cannot be written again", "error", err)
	}
}

// redescribe returns what has a change of streams made between two reloads, until ctx ends, and their descriptions written again.
func (a *Appliance) redescribe(ctx context.Context) func(change func() (changed bool)) {
	return func(change func() bool) {
		_ = a.ask(ctx, func(context.Context) (result, fatal error) {
			if change() {
				a.describeAgain()
			}
			return nil, nil
		}) // an error is ctx's end
	}
}

// reconfigure notes how outputs are described from now on, for when they are opened again.
func (a *Appliance) reconfigure(c *config.Appliance) {
	for _, f := range a.flows {
		for _, o := range f.outputs {
			o.config = c.Output(o.name)
		}
	}
}

// retry has an output that has failed be opened again at once. It reports whether it had failed.
func (a *Appliance) retry(name string) bool {
	_, o := a.output(name)
	return a.tryNow(name) || o != nil && o.attached.Retry()
}
