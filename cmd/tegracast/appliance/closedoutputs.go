// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline"
)

// manyTries is a number of tries after which the pause until a waiting output's next try has its maximum.
const manyTries = 16

// closedOutputs holds the outputs that are not open: stopped ones, which a client has stopped, and waiting ones, which
// could not be opened yet and are tried again. All methods may be called concurrently.
type closedOutputs struct {
	log *slog.Logger

	mu      sync.Mutex
	names   []string                // of all outputs, in the order of the configuration
	stopped map[string]outputReport // by name
	waiting map[string]*waiting     // by name
}

// A waiting output could not be opened when the appliance started or returned to its previous configuration, for a
// temporary reason (IsTemporary). Everything else runs without it.
type waiting struct {
	about outputReport
	from  string
	tries pipeline.Recovery // determines its pauses
	log   pipeline.FaultLog
}

// addWaiting records why an output cannot be opened now, and when it is tried again. It returns false, and records
// nothing, if the reason is not temporary. It does the same if patient is false and the output was not waiting before:
// a reload then returns to the previous configuration.
func (c *closedOutputs) addWaiting(o *config.Output, why error, patient bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	w, now := c.waiting[o.Name], time.Now()
	if w == nil && !patient || !IsTemporary(why) {
		return false
	}
	if w == nil {
		w = &waiting{about: reportConfigured(o), from: o.From, tries: pipeline.Recovery{First: pipeline.FirstReopen, Last: pipeline.LastReopen}}
		w.about.Since = &now
		c.waiting[o.Name] = w
	}
	w.tries.Attempts++
	w.scheduleNext(why)
	if left, due := w.log.Due("", now); due {
		c.log.Error("output cannot be opened yet, and is tried again", pipeline.Unlogged([]any{"output", o.Name, "error", why}, left)...)
	}
	return true
}

// scheduleNext records why the output cannot be opened, and schedules the next try after a pause.
func (w *waiting) scheduleNext(why error) {
	next := time.Now().Add(w.tries.Pause())
	w.about.State, w.about.Error, w.about.Next = pipeline.Retrying, why.Error(), &next
}

// removeWaiting ends the waiting of an output that has been opened.
func (c *closedOutputs) removeWaiting(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting[name] != nil {
		delete(c.waiting, name)
		c.log.Info("output is open now", "output", name)
	}
}

// due returns a channel that receives when the next output is to be tried, or nil if none is.
func (c *closedOutputs) due() <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	var next time.Time
	for _, w := range c.waiting {
		if at := w.about.Next; at != nil && (next.IsZero() || at.Before(next)) {
			next = *at
		}
	}
	if next.IsZero() {
		return nil
	}
	return time.After(time.Until(next))
}

// overdue returns the names of the outputs that are to be tried now.
func (c *closedOutputs) overdue() (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, w := range c.waiting {
		if at := w.about.Next; at != nil && !at.After(time.Now()) {
			names = append(names, name)
		}
	}
	return names
}

// trySeldom records why a waiting output cannot be opened, and schedules its next tries with the longest pauses.
func (c *closedOutputs) trySeldom(name string, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.waiting[name]; w != nil {
		w.tries.Attempts = manyTries
		w.scheduleNext(why)
	}
}

// tryNow schedules a waiting output for an immediate try. It returns false if the output does not wait, or if its
// source has ended (endWaiting).
func (c *closedOutputs) tryNow(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.waiting[name]
	if w == nil || w.about.State == pipeline.Ended {
		return false
	}
	now := time.Now()
	w.tries.Attempts, w.about.Next = 0, &now
	return true
}

// hasMissed reports whether an output waits whose source has ended (endWaiting).
func (c *closedOutputs) hasMissed(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.waiting[name]
	return w != nil && w.about.State == pipeline.Ended
}

// endWaiting ends the tries for a waiting output whose source has ended meanwhile. The output and its source are opened
// together when a client starts the output.
func (c *closedOutputs) endWaiting(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.waiting[name]
	c.log.Error("output has missed its source, which was played to its end: start the output, and the source is played again",
		"output", name, "error", w.about.Error)
	w.about.OutputStatus = pipeline.OutputStatus{State: pipeline.Ended}
}

// stop records that a client has stopped an output. It calls report only for an output that does not wait, to get its
// description.
func (c *closedOutputs) stop(name string, report func() outputReport) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := outputReport{}
	if w := c.waiting[name]; w != nil {
		x = w.about
		delete(c.waiting, name)
	} else {
		x = report()
	}
	c.stopped[name] = outputReport{
		Name: x.Name, From: x.From, Sends: x.Sends, To: x.To, Record: x.Record, Stopped: true, OutputStatus: pipeline.OutputStatus{State: pipeline.Stopped},
	}
}

// isStopped reports whether a client has stopped an output.
func (c *closedOutputs) isStopped(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, is := c.stopped[name]
	return is
}

// start marks a stopped output as started. stopAgain reverts that.
func (c *closedOutputs) start(name string) (stopAgain func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := map[string]outputReport{name: c.stopped[name]}
	delete(c.stopped, name)
	return func() { c.restore(was) }
}

// startAll marks all stopped outputs as started, and returns their names. stopAgain reverts that.
func (c *closedOutputs) startAll() (names []string, stopAgain func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.stopped
	c.stopped = map[string]outputReport{}
	return slices.Collect(maps.Keys(was)), func() { c.restore(was) }
}

// restore marks outputs as stopped again.
func (c *closedOutputs) restore(were map[string]outputReport) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.Copy(c.stopped, were)
}

// setOutputs records the outputs of a configuration, and forgets the waiting ones that are not among them.
func (c *closedOutputs) setOutputs(next *config.Appliance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.waiting, func(name string, _ *waiting) bool { return next.Output(name) == nil })
	c.names = nil
	for i := range next.Outputs {
		c.names = append(c.names, next.Outputs[i].Name)
	}
}

// stats returns the statistics of the outputs that wait.
func (c *closedOutputs) stats() (list []pipeline.OutputStats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, w := range c.waiting {
		list = append(list, pipeline.OutputStats{Name: name, From: w.from, OutputStatus: w.about.OutputStatus})
	}
	return list
}

// addTo adds the outputs that are not open to a list of those that are, and sorts it as in the configuration.
func (c *closedOutputs) addTo(list []outputReport) []outputReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	list = slices.AppendSeq(list, maps.Values(c.stopped))
	for _, w := range c.waiting {
		list = append(list, w.about)
	}
	slices.SortFunc(list, func(x, y outputReport) int {
		return cmp.Compare(slices.Index(c.names, x.Name), slices.Index(c.names, y.Name))
	})
	return list
}
