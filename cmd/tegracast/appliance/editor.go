// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
)

// configuration is the current configuration, for the page.
type configuration struct {
	Text      string
	Installed string // path of the installed file; empty: the default configuration
	Kept      bool   // a stored text is used in place of the installed file
	Keeps     bool   // a change is stored, so that it outlives the process
	Ignored   bool   // a stored text exists but is not used, because it is invalid or cannot be opened
}

// An editor changes the configuration at the request of SIGHUP or of the page, and shows it to the page.
type editor struct {
	reloader *reloader
	requests requests
	store    ConfigStore
	page     func() config.Web         // the section web that is in use
	notify   func() (done func(error)) // reports to the service manager that a reload begins; done reports its result
	log      *slog.Logger
	shown    atomic.Pointer[configuration]
}

// reloadFile reads the configuration again and restarts the parts that have changed. A file with a mistake changes
// nothing. An error means that the appliance cannot go on.
func (e *editor) reloadFile(ctx context.Context) error {
	done := e.notify()
	next, kept, err := e.store.Load(e.log)
	if err != nil {
		e.log.Error("SIGHUP: configuration rejected: still running the previous one", "error", err)
		done(err)
		return nil
	}
	_, refused, fatal := e.reloader.replaceConfig(ctx, "SIGHUP", next)
	why := cmp.Or(fatal, refused)
	if why == nil {
		e.showConfiguration(kept)
	}
	done(why)
	return fatal
}

// showConfiguration publishes the current configuration to the page, and warns about secrets that every user can read
// or change.
func (e *editor) showConfiguration(kept bool) {
	for _, s := range e.reloader.cfg.Exposed() {
		e.log.Warn("every user of this machine can read or change a secret: take that right away with chmod o-rw",
			"key", s.Key, "file", s.Path)
	}
	e.shown.Store(&configuration{
		Text: string(e.reloader.cfg.Text), Installed: e.store.Installed, Kept: kept, Keeps: e.store.Folder != "", Ignored: !kept && e.store.Holds(),
	})
}

// Configuration returns the current configuration.
func (e *editor) Configuration() configuration { return *e.shown.Load() }

// Check returns the mistakes in a text. A change of the section web is one of them.
func (e *editor) Check(text []byte) Check {
	_, check := e.store.Check(text, e.page(), e.Configuration().Text)
	return check
}

// Configure switches the appliance to a text and stores it. If the text has mistakes, Configure only returns them. An
// error says why a valid text cannot be opened, or that ctx has ended, in which case the change may still be in
// progress. If the text is used but cannot be stored, the result has a warning.
func (e *editor) Configure(ctx context.Context, text []byte) (Check, error) {
	next, check := e.store.Check(text, e.page(), e.Configuration().Text)
	if !check.Good {
		return check, nil
	}
	return e.changeTo(ctx, next, func() (kept bool, err error) { return e.store.Keep(text) })
}

// Reset switches the appliance to the installed file, as Configure does to a text, and forgets the stored one. It
// refuses an installed file that is invalid, or that would change the section web.
func (e *editor) Reset(ctx context.Context) (Check, error) {
	next, err := e.store.Original()
	if err != nil {
		return Check{}, err
	}
	if !next.Web.Equal(e.page()) {
		return Check{}, errors.New("the section web of the installed file differs from what the page works by: reload first")
	}
	return e.changeTo(ctx, next, func() (kept bool, err error) { return false, e.store.Forget() })
}

// changeTo switches the appliance to a configuration and then calls keep to store it. If keep fails, the result has a
// warning.
func (e *editor) changeTo(ctx context.Context, next *config.Appliance, keep func() (kept bool, err error)) (Check, error) {
	check := &Check{Good: true}
	err := e.requests.run(ctx, func(ctx context.Context) (result, fatal error) {
		next.TakeWeb(e.reloader.cfg)
		check.Changed, result, fatal = e.reloader.replaceConfig(ctx, "page", next)
		if result != nil || fatal != nil {
			return result, fatal
		}
		kept, err := keep()
		if e.showConfiguration(kept); err != nil {
			check.Warning = fmt.Sprint("not after a reload or a restart, since it cannot be kept: ", err)
			e.log.Warn("page: the configuration is used now, and not after a reload or a restart: it cannot be kept", "error", err)
		}
		return nil, nil
	})
	if err != nil { // the change may still be in progress
		return Check{}, err
	}
	return *check, nil
}
