package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// detachTime is how long an output may take for the frames in its hands when a reload takes it off.
const detachTime = 2 * time.Second

// runner keeps an appliance running by the configuration of now.
type runner struct {
	*appliance
	doc   *document
	path  string // of the configuration; empty: the default one
	dir   string // of the SDP files
	web   *webRunner
	ended chan *flow
	over  chan struct{} // closed when nobody waits for ended any more
}

// run runs all flows until ctx ends, all sources have ended, or one has failed.
func (r *runner) run(ctx context.Context, reload <-chan os.Signal) error {
	r.ended, r.over = make(chan *flow), make(chan struct{})
	defer close(r.over)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, f := range r.flows {
		f.start(ctx, r.ended, r.over)
	}
	r.pins.start(ctx)
	var err error
	for err == nil && ctx.Err() == nil && !r.allEnded() {
		select {
		case <-ctx.Done():
		case f := <-r.ended:
			if slices.Contains(r.flows, f) { // else a reload has ended it
				err = f.err
			}
		case <-reload:
			err = r.reload(ctx)
		}
	}
	cancel()
	for _, f := range r.flows {
		f.stop()
		if !errors.Is(err, f.err) {
			err = errors.Join(err, f.err)
		}
	}
	return err
}

func (r *runner) allEnded() bool {
	for _, f := range r.flows {
		select {
		case <-f.done:
		default:
			return false
		}
	}
	return true
}

// reload reads the configuration again and makes anew what has changed. A file that is no good changes nothing. An error
// means that the appliance cannot go on.
func (r *runner) reload(ctx context.Context) error {
	if r.path == "" {
		r.env.log.Warn("SIGHUP: there is no configuration file to read again: start with --config FILE")
		return nil
	}
	next, err := readConfig(r.path)
	if err != nil {
		r.env.log.Error("SIGHUP: the configuration is no good, and nothing changes", "error", err)
		return nil
	}
	list := changes(r.doc.Config, next.Config)
	if len(list) == 0 {
		r.env.log.Info("SIGHUP: the configuration has not changed")
		return nil
	}
	p := planned(list, r.doc, next)
	old := r.doc
	if err := r.apply(ctx, next, p); pipeline.DeviceLost(err) {
		return err
	} else if err != nil {
		r.env.log.Error("SIGHUP: the configuration cannot be opened: going back to the one before", "error", err)
		if err := r.apply(ctx, old, p); err != nil {
			return fmt.Errorf("nor can the configuration from before: %w", err)
		}
		return nil
	}
	r.env.log.Info("SIGHUP: the configuration was read again", "changed", list)
	return nil
}

// apply gives up what p names and opens it as d describes it.
func (r *runner) apply(ctx context.Context, d *document, p plan) error {
	if err := r.giveUp(ctx, d, p); err != nil {
		return err
	}
	r.doc = d
	if err := r.open(d, p); err != nil {
		return err
	}
	r.freeze(d, p.freezes)
	if err := r.announce(p.outputs); err != nil {
		return err
	}
	for _, f := range r.flows {
		if p.flows[f.name] {
			f.start(ctx, r.ended, r.over)
		}
	}
	r.pins.start(ctx)
	if p.web {
		return r.web.open(ctx, r.appliance, d.Web)
	}
	return nil
}

// giveUp stops and closes what p names: first the outputs, then flows, then the cards that nobody uses any more. What it meets
// is told: nothing of it can be kept. An error means that the GPU is lost.
func (r *runner) giveUp(ctx context.Context, d *document, p plan) error {
	bounded, cancel := context.WithTimeout(ctx, detachTime)
	defer cancel()
	tell := func(what, name string, err error) {
		if err != nil {
			r.env.log.Warn("reload: "+what+" was closed with errors", "name", name, "error", err)
		}
	}
	tell("a GPIO line", "", r.pins.drop(p.pins))
	keep := map[string]bool{}
	for _, f := range slices.Clone(r.flows) {
		for _, o := range slices.Clone(f.outputs) {
			if !p.outputs[o.name] {
				continue
			}
			if o.stream != nil && !slices.ContainsFunc(d.Outputs, func(c OutputConfig) bool { return c.Name == o.name && c.RTP != nil }) {
				_ = os.Remove(filepath.Join(r.dir, o.name+".sdp")) // of a stream that is no more
			}
			tell("an output", o.name, r.dropOutput(bounded, f, o))
		}
		if p.flows[f.name] {
			err := r.dropFlow(f)
			tell("a source", f.name, err)
			if pipeline.DeviceLost(err) {
				return err
			}
		}
	}
	for i := range d.Sources {
		s := &d.Sources[i]
		if s.FPGA != nil || !p.flows[s.Name] {
			keep[s.card()] = !p.memory && !p.cards[s.card()]
		}
	}
	tell("a card", "", r.dropCards(keep))
	if p.memory {
		tell("the memory", "", r.dropMemory())
	}
	return nil
}
