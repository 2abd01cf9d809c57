// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/tegracast/tegracast/pipeline"
)

// A healthWatch checks that the pipeline makes progress, and notifies the service manager (sd_notify(3)).
type healthWatch struct {
	started  func(context.Context) bool // waits until every output is armed; returns false if ctx ends first
	stats    func() pipeline.Stats
	log      *slog.Logger
	watchdog time.Duration // watchdog interval of the service manager; 0: none
	settle   func()        // called once, when the pipeline has run for settledAfter without a stall; nil: nothing

	patience time.Duration // how long a part may make no progress
	every    time.Duration

	talking   sync.Mutex // held while the service manager is notified
	announced bool       // READY=1 was sent, and STOPPING=1 was not
	said      string     // the latest status sent
	reloading time.Time  // when the current reload began; zero: none
	failure   string     // error of the latest reload; empty: it succeeded, or there was none

	guard   sync.Mutex
	ready   bool
	stalled error
	looked  time.Time // when the statistics were last read
}

// defaultPatience is the time after which a part that makes no progress counts as stalled, if there is no watchdog
// interval.
const defaultPatience = 20 * time.Second

// newHealthWatch returns a healthWatch. started waits until every output is armed, and returns false if its context
// ends first. settle is called a single time, when the pipeline has run for settledAfter without a stall.
func newHealthWatch(started func(context.Context) bool, stats func() pipeline.Stats, settle func(), log *slog.Logger) (*healthWatch, error) {
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return nil, fmt.Errorf("WATCHDOG_USEC: %w", err)
	}
	h := &healthWatch{started: started, stats: stats, log: log, watchdog: watchdog, settle: settle, every: time.Second, patience: defaultPatience}
	if watchdog > 0 {
		h.every, h.patience = min(h.every, watchdog/4), watchdog/2
	}
	return h, nil
}

// State reports whether every output is armed, and what is stalled. It does not block. If the statistics have not been
// read for longer than a part may make no progress, State reports a stall.
func (h *healthWatch) State() (ready bool, stalled error) {
	h.guard.Lock()
	defer h.guard.Unlock()
	if quiet := time.Since(h.looked); h.ready && h.stalled == nil && quiet > h.patience {
		return true, fmt.Errorf("%w: its books have not been read for %v", errStalled, quiet.Round(time.Second))
	}
	return h.ready, h.stalled
}

func (h *healthWatch) set(ready bool, stalled error) {
	h.guard.Lock()
	defer h.guard.Unlock()
	h.ready, h.stalled, h.looked = ready, stalled, time.Now()
}

// Run waits until every output is armed, reports readiness, and feeds the watchdog while the pipeline makes progress.
// When ctx ends, it returns; if it has reported readiness, it first reports that the service stops.
func (h *healthWatch) Run(ctx context.Context) {
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
	var watch progress
	good := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			st := h.stats()
			if h.look(st, watch.check(st, now, h.patience)) {
				good = now
			} else if h.settle != nil && now.Sub(good) >= settledAfter {
				h.settle()
				h.settle = nil
			}
		}
	}
}

// announce notifies the service manager that the service is ready, or, if ready is false, that it is stopping.
func (h *healthWatch) announce(ready bool, st pipeline.Stats) {
	h.talking.Lock()
	defer h.talking.Unlock()
	if h.announced = ready; !ready {
		h.tell(daemon.SdNotifyStopping)
		return
	}
	h.said = h.status(st, nil)
	h.tell(daemon.SdNotifyReady + "\nSTATUS=" + h.said)
}

// look feeds the watchdog unless something is stalled, logs when a stall begins or ends, and updates the status. It
// reports whether anything is stalled.
func (h *healthWatch) look(st pipeline.Stats, stalled error) bool {
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
	if now := h.status(st, stalled); now != h.said && (stalled == nil || before == nil) { // the duration of a stall changes all the time
		h.said = now
		h.tell("STATUS=" + now)
	}
	if stalled == nil && h.watchdog > 0 {
		h.tell(daemon.SdNotifyWatchdog)
	}
	// A reload may take longer than TimeoutStartSec=. EXTEND_TIMEOUT_USEC= also delays the watchdog, but by no more
	// than its value.
	if stalled == nil && !h.reloading.IsZero() && time.Since(h.reloading) < reloadTime {
		h.tell(fmt.Sprint("EXTEND_TIMEOUT_USEC=", h.patience.Microseconds()))
	}
	return stalled != nil
}

// longest is the length in bytes to which a status is cut. Messages to the service manager of more than 4096 bytes are
// lost.
const longest = 3000

// status describes the pipeline for display by the service manager: whether frames are streamed, what is stalled, why
// the latest reload failed, which outputs are retried, and which sources have ended. h.talking must be held.
func (h *healthWatch) status(st pipeline.Stats, stalled error) string {
	var list []string
	if stalled != nil {
		list = append(list, joinLines(stalled.Error()))
	}
	if h.failure != "" {
		list = append(list, h.failure)
	}
	for _, o := range st.Outputs {
		if o.State == pipeline.Retrying {
			list = append(list, fmt.Sprintf("output %s is retrying since %s: %s", o.Name, o.Since.Format(time.TimeOnly), joinLines(o.Error)))
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

// joinLines replaces the line breaks in a text by semicolons.
func joinLines(text string) string { return strings.ReplaceAll(text, "\n", "; ") }

// tell sends a message to the service manager, if there is one.
func (h *healthWatch) tell(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		h.log.Warn("the service manager cannot be notified", "error", err)
	}
}
