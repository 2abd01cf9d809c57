// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/lines"
	"github.com/tegracast/tegracast/pipeline/group"
)

// A runner runs the flows and the GPIO lines, and changes them at the requests of others.
type runner struct {
	flows       *flows
	lines       *lines.Lines
	groups      *group.Set
	requests    requests
	due         func() <-chan time.Time     // returns a channel that receives when openWaiting is to be called, or nil
	openWaiting func(context.Context) error // an error means that the appliance cannot go on
	reload      func(context.Context) error // an error means that the appliance cannot go on; nil: SIGHUP ends run
	exits       bool                        // run returns when all sources have ended
	ending      *shutdown                   // nil: the shutdown is not watched
	log         *slog.Logger

	ended chan *flow
	over  chan struct{} // closed when ended is no longer read
}

// startFlows starts the flows of the named sources, or of all if sources is nil, and the GPIO lines and the triggers of
// groups that do not run yet. They run until ctx ends.
func (r *runner) startFlows(ctx context.Context, sources map[string]bool) {
	for _, f := range r.flows.all() {
		if sources == nil || sources[f.name] {
			f.start(ctx, r.ended, r.over)
		}
	}
	r.lines.Start(ctx)
	r.groups.Start(ctx)
}

// run runs all flows until ctx ends, a flow fails, a change returns a fatal error, a signal arrives on hangup while
// r.reload is nil, or, if r.exits is set, all sources have ended.
func (r *runner) run(ctx context.Context, hangup <-chan os.Signal) error {
	defer close(r.over)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.startFlows(ctx, nil)
	var err error
	for err == nil && ctx.Err() == nil && !(r.exits && r.flows.allEnded()) {
		select {
		case <-ctx.Done():
		case f := <-r.ended:
			if slices.Contains(r.flows.all(), f) { // otherwise a reload has ended it
				err = f.err
			}
			if err == nil && ctx.Err() == nil {
				r.log.Info("source was played to its end", "source", f.name)
			}
		case <-r.due():
			err = r.openWaiting(ctx)
		case do := <-r.requests:
			err = do(ctx)
		case <-hangup:
			if r.reload == nil {
				r.log.Info("SIGHUP: there is no configuration file to reload: ending")
				cancel()
			} else {
				err = r.reload(ctx)
			}
		}
	}
	cancel()
	r.ending.Begin(err)
	for _, f := range r.flows.all() {
		f.stop()
		if !errors.Is(err, f.err) {
			err = errors.Join(err, f.err)
		}
	}
	return err
}
