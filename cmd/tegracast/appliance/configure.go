// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"errors"
	"fmt"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline/web"
)

// show notes the configuration of now, for the page.
func (r *runner) show(kept bool) {
	r.shown.Store(&web.Configuration{
		Text: string(r.cfg.Text), Installed: r.store.Installed, Kept: kept, Keeps: r.store.Folder != "", Ignored: !kept && r.store.Holds(),
	})
}

// Configuration implements web.Configurator.
func (r *runner) Configuration() web.Configuration { return *r.shown.Load() }

// Check implements web.Configurator: it is what config check says.
func (r *runner) Check(text []byte) web.Check {
	_, check := r.store.Check(text, r.web.Now(), r.Configuration().Text)
	return check
}

// Configure implements web.Configurator.
func (r *runner) Configure(ctx context.Context, text []byte) (web.Check, error) {
	next, check := r.store.Check(text, r.web.Now(), r.Configuration().Text)
	if !check.Good {
		return check, nil
	}
	return r.change(ctx, next, func() (kept bool, err error) { return r.store.Keep(text) })
}

// Reset implements web.Configurator.
func (r *runner) Reset(ctx context.Context) (web.Check, error) {
	next, err := r.store.Original()
	if err != nil {
		return web.Check{}, err
	}
	if next.Web != r.web.Now() {
		return web.Check{}, errors.New("the section web of the installed file differs from what the page works by: reload first")
	}
	return r.change(ctx, next, func() (kept bool, err error) { return false, r.store.Forget() })
}

// change has the appliance work by a configuration, and then keeps it.
func (r *runner) change(ctx context.Context, next *config.Appliance, keep func() (kept bool, err error)) (web.Check, error) {
	check := &web.Check{Good: true}
	err := r.a.ask(ctx, func(ctx context.Context) (result, fatal error) {
		next.TakeWeb(r.cfg)
		check.Changed, result, fatal = r.become(ctx, "page", next)
		if result != nil || fatal != nil {
			return result, fatal
		}
		kept, err := keep()
		if r.show(kept); err != nil {
			check.Warning = fmt.Sprint("not after a reload or a restart, since it cannot be kept: ", err)
			r.a.env.Log.Warn("page: the configuration is used now, and not after a reload or a restart: it cannot be kept", "error", err)
		}
		return nil, nil
	})
	if err != nil { // it may still be under way
		return web.Check{}, err
	}
	return *check, nil
}
