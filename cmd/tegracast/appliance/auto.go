// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/control"
)

// freeze holds and releases what the configuration says of the isps in names, in loops that run.
func (a *Appliance) freeze(c *config.Appliance, names map[string]bool) {
	for _, x := range a.controllers() {
		if !names[x.Name] {
			continue
		}
		if k, ok := c.Stage(x.Name).Kind.(*config.ISP); ok {
			x.Freeze(k.Auto.Frozen())
		}
	}
}

// controllers are the loops that run.
func (a *Appliance) controllers() []*control.Loop {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []*control.Loop
	for _, f := range a.flows {
		list = append(list, f.controllers...)
	}
	return list
}

// control runs the loops until ctx ends, and returns when they have.
func (f *flow) control(ctx context.Context) (wait func()) {
	done := make(chan struct{}, len(f.controllers))
	for _, c := range f.controllers {
		go func() {
			c.Run(ctx, c.Stage)
			done <- struct{}{}
		}()
	}
	return func() {
		for range f.controllers {
			<-done // ends: the flow has ended their context
		}
	}
}

// panels are what can be set by hand, of each source.
func (a *Appliance) panels() (list []*control.Panel) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.flows {
		if f.panel != nil {
			list = append(list, f.panel)
		}
	}
	return list
}
