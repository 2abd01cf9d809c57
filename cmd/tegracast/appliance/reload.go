// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/kept"
	"github.com/tegracast/tegracast/cmd/tegracast/progress"
	"github.com/tegracast/tegracast/cmd/tegracast/site"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/web"
)

// detachTime is how long the outputs that a reload takes off may take, together, for the frames in their hands.
const detachTime = 2 * time.Second

// runner keeps an appliance running by the configuration of now.
type runner struct {
	a     *Appliance
	cfg   *config.Appliance
	store kept.Store // of the configuration
	fixed bool       // there is no file to reload
	shown atomic.Pointer[web.Configuration]
	dir   string // of the SDP files
	web   *site.Server
	tells *progress.Watch // is told of reloads
	ended chan *flow
	over  chan struct{} // closed when nobody waits for ended any more
	exits bool          // when all sources have ended
}

// run runs all flows until ctx ends, one has failed, or all sources have ended and the runner exits then.
func (r *runner) run(ctx context.Context, reload <-chan os.Signal) error {
	r.a.describes = func() error { return r.announce(nil) }
	r.ended, r.over = make(chan *flow), make(chan struct{})
	defer close(r.over)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, f := range r.a.flows {
		f.start(ctx, r.ended, r.over)
	}
	r.a.lines.Start(ctx)
	var err error
	for err == nil && ctx.Err() == nil && !(r.exits && r.allEnded()) {
		select {
		case <-ctx.Done():
		case f := <-r.ended:
			if slices.Contains(r.a.flows, f) { // else a reload has ended it
				err = f.err
			}
			if err == nil && ctx.Err() == nil {
				r.a.env.Log.Info("source was played to its end", "source", f.name)
			}
		case <-r.a.due():
			err = r.openWaiting(ctx)
		case do := <-r.a.asked:
			err = do(ctx)
		case <-reload:
			if r.fixed {
				r.a.env.Log.Info("SIGHUP: there is no configuration file to reload: ending")
				cancel()
			} else {
				err = r.reload(ctx)
			}
		}
	}
	cancel()
	r.a.ending.Begin(err)
	for _, f := range r.a.flows {
		f.stop()
		if !errors.Is(err, f.err) {
			err = errors.Join(err, f.err)
		}
	}
	return err
}

func (r *runner) allEnded() bool {
	return !slices.ContainsFunc(r.a.flows, func(f *flow) bool { return !f.ended() })
}

// replay adds to p the sources that have ended and of which it opens an output: they are played again.
func (r *runner) replay(p plan, c *config.Appliance) {
	for i := range c.Outputs {
		o := &c.Outputs[i]
		if f := r.a.flow(o.Source); f != nil && f.ended() && p.outputs[o.Name] && !r.a.stopped(o.Name) {
			p.flows[o.Source] = true
		}
	}
	p.follow(c)
}

// reload reads the configuration again and restarts only what has changed. A file with a mistake changes nothing. An error
// means that the appliance cannot go on.
func (r *runner) reload(ctx context.Context) error {
	done := r.tells.Reload()
	next, kept, err := r.store.Load(r.a.env.Log)
	if err != nil {
		r.a.env.Log.Error("SIGHUP: configuration rejected: still running the previous one", "error", err)
		done(err)
		return nil
	}
	_, refused, fatal := r.become(ctx, "SIGHUP", next)
	why := cmp.Or(fatal, refused)
	if why == nil {
		r.show(kept)
	}
	done(why)
	return fatal
}

// become restarts what differs between the configuration of now and next, and returns where they differ. refused says why it has gone
// back to the one before, fatal that the appliance cannot go on. who has asked for it is told to the log.
func (r *runner) become(ctx context.Context, who string, next *config.Appliance) (list []string, refused, fatal error) {
	next.FindPaths(ctx)
	list = config.Changes(r.cfg, next)
	for _, name := range next.NewPaths(r.cfg) {
		list = append(list, "outputs["+name+"]: path to its destinations")
	}
	p, old := planned(r.cfg, next), r.cfg
	started := r.a.startAll()
	for name := range started {
		p.outputs[name] = true
		list = append(list, "outputs["+name+"]: started")
	}
	r.replay(p, old)
	r.replay(p, next)
	for _, name := range r.a.names {
		if !p.outputs[name] && r.a.retry(name) {
			list = append(list, "outputs["+name+"]: tried again")
		}
	}
	if len(list) == 0 {
		r.cfg, r.a.text = next, next.Text
		r.a.env.Log.Info(who + ": the configuration has not changed")
		return nil, nil, nil
	}
	if err := r.apply(ctx, next, p); errors.Is(err, cudahost.ErrInterrupted) {
		return nil, err, nil // ctx has ended
	} else if pipeline.DeviceLost(err) {
		return nil, err, err
	} else if err != nil {
		refused = err
		r.a.env.Log.Error(who+": the new configuration cannot be opened: going back to the previous one", "error", err)
		r.a.stopAgain(started)
		p.patient = true // what has become impossible meanwhile waits
		if err := r.apply(ctx, old, p); pipeline.DeviceLost(err) {
			return nil, refused, err
		} else if err != nil { // no config.Error: the file is not what is wrong, so the service manager shall start it again
			return nil, refused, errors.New("the previous configuration cannot be opened again: " + err.Error())
		}
		r.settle()
		return nil, refused, nil
	}
	r.settle()
	r.a.env.Log.Info(who+": configuration reloaded", "changed", list)
	return list, nil, nil
}

// openWaiting tries the outputs whose time has come. An error means that the appliance cannot go on.
func (r *runner) openWaiting(ctx context.Context) error {
	for _, name := range r.a.overdue() {
		if r.a.flow(r.cfg.Output(name).Source).ended() {
			r.a.missed(name)
			continue
		}
		p := emptyPlan()
		p.outputs[name] = true
		if err := r.apply(ctx, r.cfg, p); pipeline.DeviceLost(err) {
			return err
		} else if err != nil {
			r.a.env.Log.Error("output cannot be opened, for a reason that does not pass by itself", "output", name, "error", err)
			r.a.seldom(name, err)
		}
	}
	return nil
}

// settle ends what a reload has left to be undone.
func (r *runner) settle() {
	if err := r.a.egress.Settle(); err != nil {
		r.a.env.Log.Warn("a destination that a client has asked for cannot be ended", "error", err)
	}
}

// apply closes what p names and opens it as c describes it.
func (r *runner) apply(ctx context.Context, c *config.Appliance, p plan) error {
	if err := r.exchange(ctx, c, p); err != nil {
		return err
	}
	r.a.reconfigure(c)
	r.a.freeze(c, p.adjusted)
	if err := r.a.redirect(ctx, c, p.adjusted); err != nil {
		return err
	}
	if err := r.announce(p.outputs); err != nil {
		return err
	}
	for _, f := range r.a.flows {
		if p.flows[f.name] {
			f.start(ctx, r.ended, r.over)
		}
	}
	r.a.lines.Start(ctx)
	if p.rtsp {
		if err := r.a.egress.Listen(c.RTSP, r.a.env.Out, r.a.env.Log); err != nil {
			return err
		}
	}
	if p.web {
		return r.web.Open(ctx, c.Web)
	}
	return nil
}

// exchange closes what p names and opens it as c describes it. Nobody begins to look at an output meanwhile.
func (r *runner) exchange(ctx context.Context, c *config.Appliance, p plan) error {
	r.a.changing.Lock()
	defer r.a.changing.Unlock()
	if err := r.giveUp(ctx, c, p); err != nil {
		return err
	}
	r.cfg = c
	return r.a.open(c, p)
}

// giveUp stops and closes what p names: first the outputs, then flows, then the cards that nobody uses any more. What it meets
// is told: nothing of it can be kept. An error means that the GPU is lost.
func (r *runner) giveUp(ctx context.Context, c *config.Appliance, p plan) error {
	bounded, cancel := context.WithTimeout(ctx, detachTime)
	defer cancel()
	tell := func(what, name string, err error) {
		if err != nil {
			r.a.env.Log.Warn("reload: "+what+" was closed with errors", "name", name, "error", err)
		}
	}
	tell("a GPIO line", "", r.a.lines.Close(p.lines))
	keep := map[string]bool{}
	for _, f := range slices.Clone(r.a.flows) {
		for _, o := range slices.Clone(f.outputs) {
			if !p.outputs[o.name] {
				continue
			}
			if o.stream != nil && (!streams(c.Output(o.name)) || r.a.stopped(o.name)) {
				_ = os.Remove(filepath.Join(r.dir, o.name+".sdp")) // of a stream that is no more
			}
			tell("an output", o.name, r.a.dropOutput(bounded, f, o))
		}
		if p.flows[f.name] {
			err := r.a.dropFlow(f)
			tell("a source", f.name, err)
			if pipeline.DeviceLost(err) {
				return err
			}
		}
	}
	for i := range c.Sources {
		s := &c.Sources[i]
		if !s.Card.Own || !p.flows[s.Name] {
			keep[s.Card.Name] = !p.memory && !p.cards[s.Card.Name]
		}
	}
	tell("a card", "", r.a.dropCards(keep))
	if p.memory {
		tell("the memory", "", r.a.dropMemory())
	}
	return nil
}

// streams says whether an output is an RTP stream.
func streams(o *config.Output) bool {
	if o == nil {
		return false
	}
	_, is := o.Kind.(*config.RTP)
	return is
}
