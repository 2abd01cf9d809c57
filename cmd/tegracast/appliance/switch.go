// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"maps"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/web"
)

// switchOutput starts or stops an output. One that is stopped is closed, and nothing is made for it.
func (r *runner) switchOutput(ctx context.Context, name string, on bool) error {
	return r.a.ask(ctx, func(ctx context.Context) (result, fatal error) {
		if r.cfg.Output(name) == nil {
			return web.ErrNoOutput, nil
		}
		if on != r.a.stopped(name) { // it is so already
			if on {
				r.a.retry(name)
			}
			return nil, nil
		}
		p := emptyPlan()
		p.outputs[name] = true
		was := r.a.turn(name, on)
		r.replay(p, r.cfg)
		err := r.apply(ctx, r.cfg, p)
		if err != nil && on && !pipeline.DeviceLost(err) {
			r.a.stopAgain(map[string]web.Output{name: was})
			if again := r.apply(ctx, r.cfg, p); pipeline.DeviceLost(again) { // it may be open by now
				err = again
			}
		}
		if pipeline.DeviceLost(err) {
			return err, err
		}
		r.settle()
		if err == nil {
			r.a.env.Log.Info(map[bool]string{true: "an output was started", false: "an output was stopped"}[on], "output", name)
		}
		return err, nil
	})
}

// turn notes that an output is to be stopped, or no more. It returns what the output was before it was stopped.
func (a *Appliance) turn(name string, on bool) web.Output {
	f, o := a.output(name)
	a.mu.Lock()
	defer a.mu.Unlock()
	if on {
		was := a.off[name]
		delete(a.off, name)
		return was
	}
	x := web.Output{}
	if w := a.waiting[name]; w != nil {
		x = w.about
		delete(a.waiting, name)
	} else {
		x = a.about(f, o)
	}
	x = web.Output{Name: x.Name, Sends: x.Sends, To: x.To, Record: x.Record, Stopped: true, OutputStatus: pipeline.OutputStatus{State: pipeline.Stopped}}
	a.off[name] = x
	return x
}

// stopped says whether a client has stopped an output.
func (a *Appliance) stopped(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, is := a.off[name]
	return is
}

// startAll has no output stopped any more, and returns those that were.
func (a *Appliance) startAll() map[string]web.Output {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.off
	a.off = map[string]web.Output{}
	return was
}

// stopAgain has outputs be stopped as they were.
func (a *Appliance) stopAgain(were map[string]web.Output) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.Copy(a.off, were)
}

// setNames notes the order of the outputs.
func (a *Appliance) setNames(c *config.Appliance) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.names = nil
	a.forget(c)
	for i := range c.Outputs {
		a.names = append(a.names, c.Outputs[i].Name)
	}
}
