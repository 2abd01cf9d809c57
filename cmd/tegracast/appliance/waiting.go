// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/starts"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/web"
)

// manyTries is after how many the pause is the longest.
const manyTries = 16

// A waiting output is one that could not be opened when the appliance started, for a reason that passes: no name server answered, the
// network or the disk was not there yet. All else runs without it.
type waiting struct {
	about web.Output
	from  string
	tries pipeline.Recovery // for its pauses
	log   pipeline.FaultLog
}

// wait notes why an output cannot be opened now, and when it is tried again. It reports false for a reason that does not pass, and where
// nobody is to wait: in a reload, which goes back instead, unless the output waited before.
func (a *Appliance) wait(c *config.Output, why error, patient bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	w, now := a.waiting[c.Name], time.Now()
	if w == nil && !patient || !starts.Passes(why) {
		return false
	}
	if w == nil {
		w = &waiting{about: aboutConfigured(c), from: c.From, tries: pipeline.Recovery{First: pipeline.FirstReopen, Last: pipeline.LastReopen}}
		w.about.Since = &now
		a.waiting[c.Name] = w
	}
	w.tries.Attempts++
	w.again(why)
	if left, due := w.log.Due("", now); due {
		a.env.Log.Error("output cannot be opened yet, and is tried again", pipeline.Unlogged([]any{"output", c.Name, "error", why}, left)...)
	}
	return true
}

// again notes why the output cannot be opened, and that it is tried again after the next pause.
func (w *waiting) again(why error) {
	next := time.Now().Add(w.tries.Pause())
	w.about.State, w.about.Error, w.about.Next = pipeline.Retrying, why.Error(), &next
}

// aboutConfigured describes an output that was never open.
func aboutConfigured(c *config.Output) web.Output {
	x := web.Output{Name: c.Name, Sends: "frames"}
	switch k := c.Kind.(type) {
	case *config.RTP:
		x.Sends, x.To = payloadNames[k.Payload.V], k.Destinations
	case *config.Record:
		x.Sends, x.Record = "a recording", true
	}
	return x
}

// opened ends the waiting of an output.
func (a *Appliance) opened(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting[name] != nil {
		delete(a.waiting, name)
		a.env.Log.Info("output is open now", "output", name)
	}
}

// due returns a channel that tells when the next output is to be tried again; nil: none waits.
func (a *Appliance) due() <-chan time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	var next time.Time
	for _, w := range a.waiting {
		if at := w.about.Next; at != nil && (next.IsZero() || at.Before(next)) {
			next = *at
		}
	}
	if next.IsZero() {
		return nil
	}
	return time.After(time.Until(next))
}

// overdue are the outputs that are to be tried now.
func (a *Appliance) overdue() (names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, w := range a.waiting {
		if at := w.about.Next; at != nil && !at.After(time.Now()) {
			names = append(names, name)
		}
	}
	return names
}

// seldom has an output that waits be tried with the longest pauses.
func (a *Appliance) seldom(name string, why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w := a.waiting[name]; w != nil {
		w.tries.Attempts = manyTries
		w.again(why)
	}
}

// tryNow has an output that waits be tried at once. It reports whether it waits.
func (a *Appliance) tryNow(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.waiting[name]
	if w == nil || w.about.State == pipeline.Ended {
		return false
	}
	now := time.Now()
	w.tries.Attempts, w.about.Next = 0, &now
	return true
}

// missed ends the tries for an output whose source was played to its end meanwhile. It is opened with its source, when somebody starts it.
func (a *Appliance) missed(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.waiting[name]
	a.env.Log.Error("output has missed its source, which was played to its end: start the output, and the source is played again",
		"output", name, "error", w.about.Error)
	w.about.OutputStatus = pipeline.OutputStatus{State: pipeline.Ended}
}

// forget ends the waiting of outputs that c does not have.
func (a *Appliance) forget(c *config.Appliance) {
	for name := range a.waiting {
		if c.Output(name) == nil {
			delete(a.waiting, name)
		}
	}
}
