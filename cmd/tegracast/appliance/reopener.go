// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"log/slog"

	"github.com/tegracast/tegracast/pipeline"
)

// A reopener opens failed outputs again, and moves streams to the new addresses of their destinations' names.
type reopener struct {
	requests  requests
	sinks     *sinkOpener
	announcer *announcer
	log       *slog.Logger
}

// reopenOutput opens a failed output again, between two reloads, and returns its new sink, or ctx's error if ctx ends
// first.
func (r *reopener) reopenOutput(ctx context.Context, f *flow, o *output, own pipeline.Format) (pipeline.Sink, error) {
	opened := make(chan pipeline.Sink, 1)
	if err := r.requests.run(ctx, func(context.Context) (result, fatal error) {
		if err := o.close(); err != nil {
			r.log.Warn("an output that failed was closed with errors", "output", o.name, "error", err)
		}
		next := &output{name: o.name, from: o.from, view: o.view, viewFrom: o.viewFrom, config: o.config}
		sink, err := r.sinks.open(f, next, o.config, own)
		if err != nil {
			next.free, next.stream = nil, nil
		}
		f.mu.Lock()
		o.free, o.stream = next.free, next.stream
		f.mu.Unlock()
		if o.stream != nil {
			r.announcer.rewriteFiles()
		}
		opened <- sink
		return err, nil
	}); err != nil {
		return nil, err
	}
	return <-opened, nil // ends: the function has sent a value
}

// followNames moves streams whenever a destination's name resolves to another address, between two reloads, until ctx
// ends.
func (r *reopener) followNames(ctx context.Context) {
	r.sinks.streams.Follow(ctx, r.log, func(change func() (changed bool)) {
		_ = r.requests.run(ctx, func(context.Context) (result, fatal error) {
			if change() {
				r.announcer.rewriteFiles()
			}
			return nil, nil
		}) // an error means that ctx has ended
	})
}

// followClocks writes the descriptions of the streams again, between two reloads, when the cameras' clocks have begun or
// ceased to have the time of the one that they follow, until ctx ends.
func (r *reopener) followClocks(ctx context.Context) {
	r.sinks.cards.watchClocks(ctx, func() {
		_ = r.requests.run(ctx, func(context.Context) (result, fatal error) {
			r.announcer.rewriteFiles()
			return nil, nil
		}) // an error means that ctx has ended
	})
}
