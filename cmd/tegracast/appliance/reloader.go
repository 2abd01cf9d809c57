// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/streams"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
)

// A reloader replaces the current configuration by another one.
type reloader struct {
	cfg        *config.Appliance
	opener     *opener
	flows      *flows
	closed     *closedOutputs
	streams    *streams.Set
	recordings *record.Recordings
	announcer  *announcer
	start      func(ctx context.Context, sources map[string]bool)
	openPage   func(context.Context, config.Web) error
	out        io.Writer
	log        *slog.Logger
}

// replaceConfig restarts the parts that differ between the current configuration and next, and returns the differences.
// It also starts the outputs that clients have stopped, and tries failed ones again. refused is the reason why next is
// not used: the appliance has returned to the previous configuration, unless ctx has ended or fatal is not nil. fatal
// is the reason why the appliance cannot go on. who names the requester in the log.
func (r *reloader) replaceConfig(ctx context.Context, who string, next *config.Appliance) (list []string, refused, fatal error) {
	next.FindPaths(ctx)
	list = config.Changes(r.cfg, next)
	for _, name := range next.NewPaths(r.cfg) {
		list = append(list, "outputs["+name+"]: path to its destinations")
	}
	p, old := planned(r.cfg, next), r.cfg
	started, stopAgain := r.closed.startAll()
	for _, name := range started {
		p.outputs[name] = true
		list = append(list, "outputs["+name+"]: started")
	}
	r.replayEnded(p, old)
	r.replayEnded(p, next)
	for _, name := range r.closed.names {
		if !p.outputs[name] && r.retryOutput(name) {
			list = append(list, "outputs["+name+"]: tried again")
		}
	}
	if len(list) == 0 {
		r.cfg = next
		r.log.Info(who + ": the configuration has not changed")
		return nil, nil, nil
	}
	if err := r.applyPlan(ctx, next, p); errors.Is(err, cudahost.ErrInterrupted) {
		return nil, err, nil // ctx has ended
	} else if pipeline.DeviceLost(err) {
		return nil, err, err
	} else if err != nil {
		refused = err
		r.log.Error(who+": the new configuration cannot be opened: going back to the previous one", "error", err)
		stopAgain()
		p.patient = true // outputs that can no longer be opened wait
		if err := r.applyPlan(ctx, old, p); pipeline.DeviceLost(err) {
			return nil, refused, err
		} else if err != nil { // not a yamlfile.Error: the file is not at fault, and a restart of the service may help
			return nil, refused, errors.New("the previous configuration cannot be opened again: " + err.Error())
		}
		r.settleStreams()
		return nil, refused, nil
	}
	r.settleStreams()
	r.recordings.Retain(func(output string) bool { return next.Output(output) != nil })
	r.log.Info(who+": configuration reloaded", "changed", list)
	return list, nil, nil
}

// replayEnded adds to p the ended sources of which p opens an output, so that they are played again.
func (r *reloader) replayEnded(p plan, c *config.Appliance) {
	for i := range c.Outputs {
		o := &c.Outputs[i]
		if f := r.flows.find(o.Source); f != nil && f.ended() && p.outputs[o.Name] && !r.closed.isStopped(o.Name) {
			p.flows[o.Source] = true
		}
	}
	p.follow(c)
}

// retryOutput ends the pause before the next try to open an output that has failed or waits. It reports whether the
// output had failed or waited.
func (r *reloader) retryOutput(name string) bool {
	_, o := r.flows.output(name)
	return r.closed.tryNow(name) || o != nil && o.attached.Retry()
}

// settleStreams drops what the streams have kept for a return to the previous configuration.
func (r *reloader) settleStreams() {
	if err := r.streams.Settle(); err != nil {
		r.log.Warn("a destination that a client has asked for cannot be ended", "error", err)
	}
}

// applyPlan closes the parts that p names, and opens and starts them as c describes them. It also adjusts parts that
// keep running, and announces the streams.
func (r *reloader) applyPlan(ctx context.Context, c *config.Appliance, p plan) error {
	for _, s := range r.flows.streams() {
		if p.outputs[s.name] && (!isStream(c.Output(s.name)) || r.closed.isStopped(s.name)) {
			r.announcer.removeFile(s.name)
		}
	}
	r.cfg = c
	if err := r.opener.replaceParts(ctx, c, p); err != nil {
		return err
	}
	if err := r.adjustParts(ctx, p.adjusted); err != nil {
		return err
	}
	if err := r.announcer.announceStreams(p.outputs); err != nil {
		return err
	}
	r.start(ctx, p.flows)
	if p.rtsp {
		if err := r.streams.Listen(c.RTSP, r.log); err != nil {
			return err
		}
		r.announcer.announceURLs()
	}
	if p.web {
		return r.openPage(ctx, c.Web)
	}
	return nil
}

// isStream reports whether an output is an RTP stream.
func isStream(o *config.Output) bool {
	if o == nil {
		return false
	}
	_, is := o.Kind.(*config.RTP)
	return is
}

// adjustParts applies new values to the named stages and outputs, which keep running: control loops freeze or are
// released, and streams are sent to other destinations.
func (r *reloader) adjustParts(ctx context.Context, names map[string]bool) error {
	for _, l := range r.flows.loops() {
		if !names[l.Name] {
			continue
		}
		if k, ok := r.cfg.Stage(l.Name).Kind.(*config.ISP); ok {
			l.Freeze(k.Auto.Frozen())
		}
	}
	for _, f := range r.flows.all() {
		for _, o := range f.outputs {
			o.config = r.cfg.Output(o.name)
		}
	}
	for _, f := range r.flows.all() {
		for _, o := range f.outputs {
			if !names[o.name] || o.stream == nil {
				continue
			}
			k := o.config.Kind.(*config.RTP)
			if err := r.streams.Redirect(ctx, o.name, o.stream.config.Destinations, k.Destinations); err != nil {
				return o.config.OpenAt.Errorf("%w", err)
			}
			f.mu.Lock()
			o.stream = &stream{o.name, k, o.stream.sink}
			f.mu.Unlock()
		}
	}
	return nil
}
