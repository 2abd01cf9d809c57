// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// reloadTime is how long a reload may take for those who wait for it.
const reloadTime = 5 * time.Minute

// An outcome is what came of the last reload. Its file is in the service's runtime directory, and is there as soon as, and only where,
// SIGHUP reloads. systemd's own protocol cannot say that a reload has failed (sd_notify(3)).
type outcome struct {
	Began int64  `json:"began"` // µs of CLOCK_MONOTONIC; 0: there was no reload yet
	Error string `json:"error"` // empty: it went well
}

const outcomeFile = "reload.json"

// RuntimeDir is the service manager's runtime directory (systemd.exec(5)); empty: there is none.
func RuntimeDir() string {
	dir, _, _ := strings.Cut(os.Getenv("RUNTIME_DIRECTORY"), ":")
	return dir
}

// Reloads says that SIGHUP reloads the configuration from now on.
func (h *Watch) Reloads() { h.keep(outcome{}) }

// Reload tells the service manager that a reload begins. done tells it, and whoever waits in RequestReload, what came of it: nil, or why
// the service goes on as before, or not at all.
func (h *Watch) Reload() (done func(error)) {
	o := outcome{Began: monotonic()}
	h.talking.Lock()
	defer h.talking.Unlock()
	h.reloading = time.Now()
	if h.announced {
		h.tell(fmt.Sprintf("%s\nMONOTONIC_USEC=%d", daemon.SdNotifyReloading, o.Began))
	}
	return func(err error) {
		st := h.stats()
		_, stalled := h.State()
		h.talking.Lock()
		h.reloading, h.failure = time.Time{}, ""
		if err != nil {
			o.Error = err.Error()
			h.failure = fmt.Sprintf("the last reload has failed at %s: %s", time.Now().Format(time.TimeOnly), oneLine(o.Error))
		}
		if h.announced {
			h.said = h.status(st, stalled)
			h.tell(daemon.SdNotifyReady + "\nSTATUS=" + h.said)
		}
		h.talking.Unlock()
		h.keep(o)
	}
}

// keep writes an outcome for those who wait for it, as a whole.
func (h *Watch) keep(o outcome) {
	dir := RuntimeDir()
	if dir == "" {
		return
	}
	file := filepath.Join(dir, outcomeFile)
	text, err := json.Marshal(o)
	if err == nil {
		err = os.WriteFile(file+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		h.log.Warn("systemctl reload does not get to know what comes of a reload", "error", err)
	}
}

// RequestReload has the service that is process pid, and has the runtime directory dir, reload its configuration, and waits for what comes
// of it. An error says why the service goes on as before.
func RequestReload(ctx context.Context, pid int, dir string) error {
	file := filepath.Join(dir, outcomeFile)
	if _, err := readOutcome(file); err != nil {
		return fmt.Errorf("the running service has no file to reload, or is of an older release (systemctl restart tegracast): %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, reloadTime, fmt.Errorf("the service has not ended its reload in %v: journalctl -u tegracast", reloadTime))
	defer cancel()
	asked := monotonic()
	if err := unix.Kill(pid, unix.SIGHUP); err != nil {
		return fmt.Errorf("SIGHUP to process %d: %w", pid, err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		gone := errors.Is(unix.Kill(pid, 0), unix.ESRCH)
		o, err := readOutcome(file)
		switch {
		case err == nil && o.Began >= asked && o.Error == "":
			return nil
		case err == nil && o.Began >= asked:
			return errors.New(o.Error)
		case gone:
			return fmt.Errorf("process %d has ended: journalctl -u tegracast", pid)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func readOutcome(file string) (o outcome, err error) {
	text, err := os.ReadFile(file)
	if err == nil {
		if err = json.Unmarshal(text, &o); err != nil {
			err = fmt.Errorf("%s: %w", file, err)
		}
	}
	return o, err
}

// monotonic is CLOCK_MONOTONIC in µs, which all processes of a machine share.
func monotonic() int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // it cannot fail
	return now.Nano() / 1000
}
