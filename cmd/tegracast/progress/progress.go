// SPDX-License-Identifier: Apache-2.0

// Package progress watches whether an appliance moves, and tells the service manager.
package progress

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/tegracast/tegracast/cmd/tegracast/starts"
	"github.com/tegracast/tegracast/pipeline"
)

// A Watch watches whether the pipeline moves, and tells the service manager (sd_notify(3)).
type Watch struct {
	started  func(context.Context) bool // waits until every output is armed; false: ctx has ended first
	stats    func() pipeline.Stats
	log      *slog.Logger
	watchdog time.Duration // of the service manager; 0: none
	settle   func()        // called once the pipeline has been good for long

	patience time.Duration // with a part that stands still
	every    time.Duration

	talking   sync.Mutex // is held while the service manager is told something
	announced bool       // READY=1 was said, and STOPPING=1 was not
	said      string     // the status
	reloading time.Time  // when a reload began; zero: there is none
	failure   string     // of the last reload; empty: it went well

	guard   sync.Mutex
	ready   bool
	stalled error
	looked  time.Time // when the books were read last
}

// defaultPatience is how long a part may stand still without a watchdog that says otherwise.
const defaultPatience = 20 * time.Second

// New makes one. started waits until every output is armed, and returns false when its context ends first. settle is called once the
// pipeline has been good for long.
func New(started func(context.Context) bool, stats func() pipeline.Stats, settle func(), log *slog.Logger) (*Watch, error) {
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return nil, fmt.Errorf("WATCHDOG_USEC: %w", err)
	}
	h := &Watch{started: started, stats: stats, log: log, watchdog: watchdog, settle: settle, every: time.Second, patience: defaultPatience}
	if watchdog > 0 {
		h.every, h.patience = min(h.every, watchdog/4), watchdog/2
	}
	return h, nil
}

// State is whether every output is armed, and what stalls. It waits for nothing: what the books said last counts as unknown, and so as
// stalled, when they have not been read for as long as a part may stand still.
func (h *Watch) State() (ready bool, stalled error) {
	h.guard.Lock()
	defer h.guard.Unlock()
	if quiet := time.Since(h.looked); h.ready && h.stalled == nil && quiet > h.patience {
		return true, fmt.Errorf("%w: its books have not been read for %v", pipeline.ErrStalled, quiet.Round(time.Second))
	}
	return h.ready, h.stalled
}

func (h *Watch) set(ready bool, stalled error) {
	h.guard.Lock()
	defer h.guard.Unlock()
	h.ready, h.stalled, h.looked = ready, stalled, time.Now()
}

// Run is ready when the graph has started, and feeds the watchdog as long as the pipeline moves.
func (h *Watch) Run(ctx context.Context) {
	if !h.started(ctx) {
		return
	}
	h.set(true, nil)
	h.announce(true, h.stats())
	defer func() {
		h.set(false, nil)
		h.announce(false, pipeline.Stats{})
	}()
	tick := time.NewTicker(h.every)
	defer tick.Stop()
	var progress pipeline.Progress
	good := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			st := h.stats()
			if h.look(st, progress.Check(st, now, h.patience)) {
				good = now
			} else if h.settle != nil && now.Sub(good) >= starts.Settled {
				h.settle()
				h.settle = nil
			}
		}
	}
}

// announce tells the service manager that the service is ready, or that it stops.
func (h *Watch) announce(ready bool, st pipeline.Stats) {
	h.talking.Lock()
	defer h.talking.Unlock()
	if h.announced = ready; !ready {
		h.tell(daemon.SdNotifyStopping)
		return
	}
	h.said = h.status(st, nil)
	h.tell(daemon.SdNotifyReady + "\nSTATUS=" + h.said)
}

// look feeds the watchdog, or says what stalls. It reports whether something does.
func (h *Watch) look(st pipeline.Stats, stalled error) bool {
	_, before := h.State()
	h.set(true, stalled)
	switch {
	case stalled != nil && before == nil:
		h.log.Error("the pipeline is stalled", "fault", stalled)
	case stalled == nil && before != nil:
		h.log.Info("the pipeline makes progress again")
	}
	h.talking.Lock()
	defer h.talking.Unlock()
	if now := h.status(st, stalled); now != h.said && (stalled == nil || before == nil) { // how long it has stalled changes all the time
		h.said = now
		h.tell("STATUS=" + now)
	}
	if stalled == nil && h.watchdog > 0 {
		h.tell(daemon.SdNotifyWatchdog)
	}
	// A reload may take longer than TimeoutStartSec=. EXTEND_TIMEOUT_USEC= also puts the watchdog off, but by no more than this.
	if stalled == nil && !h.reloading.IsZero() && time.Since(h.reloading) < reloadTime {
		h.tell(fmt.Sprint("EXTEND_TIMEOUT_USEC=", h.patience.Microseconds()))
	}
	return stalled != nil
}

// longest is the most bytes of a status. A message to the service manager may have 4096, or is lost.
const longest = 3000

// status describes what stalls, why the last reload has failed, which outputs have failed and which sources have ended, for the service
// manager to show.
func (h *Watch) status(st pipeline.Stats, stalled error) string {
	var list []string
	if stalled != nil {
		list = append(list, oneLine(stalled.Error()))
	}
	if h.failure != "" {
		list = append(list, h.failure)
	}
	for _, o := range st.Outputs {
		if o.State == pipeline.Retrying {
			list = append(list, fmt.Sprintf("output %s is retrying since %s: %s", o.Name, o.Since.Format(time.TimeOnly), oneLine(o.Error)))
		}
	}
	live := false
	for _, s := range st.Sources {
		if live = live || !s.Ended; s.Ended {
			list = append(list, "source "+s.Name+" has ended")
		}
	}
	if stalled == nil && live {
		list = append([]string{"streaming"}, list...)
	}
	text := strings.Join(list, "; ")
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}

// oneLine is a text without line breaks.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }

// tell sends the service manager a message; without one nothing happens.
func (h *Watch) tell(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		h.log.Warn("the service manager cannot be notified", "error", err)
	}
}
