// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cmd/tegracast/folders"
	"github.com/tegracast/tegracast/pipeline/files"
	"github.com/tegracast/tegracast/pipeline/monotonic"
)

// reloadTime is the time limit of callers that wait for a reload.
const reloadTime = 5 * time.Minute

// An outcome is the result of the latest reload. The service keeps it in a file of its runtime directory, from the call
// of Reloads on; a service that does not reload on SIGHUP has no such file. The file is needed because systemd's own
// protocol cannot report a failed reload (sd_notify(3)).
type outcome struct {
	Began int64  `json:"began"` // µs of CLOCK_MONOTONIC; 0: no reload yet
	Error string `json:"error"` // empty: success
}

const (
	outcomeFile = "reload.json"
	maxOutcome  = 1 << 20
)

// Reloads records that SIGHUP reloads the configuration from now on.
func (h *healthWatch) Reloads() { h.keep(outcome{}) }

// Reload notifies the service manager that a reload begins. done reports its result to the service manager and to
// RequestReload: nil, or the reason why the service goes on as before or ends.
func (h *healthWatch) Reload() (done func(error)) {
	o := outcome{Began: monotonic.Now().Microseconds()}
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
			h.failure = fmt.Sprintf("the last reload has failed at %s: %s", time.Now().Format(time.TimeOnly), joinLines(o.Error))
		}
		if h.announced {
			h.said = h.status(st, stalled)
			h.tell(daemon.SdNotifyReady + "\nSTATUS=" + h.said)
		}
		h.talking.Unlock()
		h.keep(o)
	}
}

// keep writes an outcome atomically, for RequestReload.
func (h *healthWatch) keep(o outcome) {
	dir := folders.Runtime()
	if dir == "" {
		return
	}
	file := filepath.Join(dir, outcomeFile)
	text, err := json.Marshal(o)
	if err == nil {
		err = files.WriteText(file, 0o600, text)
	}
	if err != nil {
		h.log.Warn("systemctl reload does not get to know what comes of a reload", "error", err)
	}
}

// RequestReload asks the service with process ID pid and runtime directory dir to reload its configuration, and waits
// for the result. An error says why the service goes on as before, that it has ended or not answered in time, that ctx
// has ended, or that the service cannot be asked, for instance because it has no file to reload.
func RequestReload(ctx context.Context, pid int, dir string) error {
	file := filepath.Join(dir, outcomeFile)
	if _, err := readOutcome(file); err != nil {
		return fmt.Errorf("the running service has no file to reload, or is of an older release (systemctl restart tegracast): %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, reloadTime, fmt.Errorf("the service has not ended its reload in %v: journalctl -u tegracast", reloadTime))
	defer cancel()
	asked := monotonic.Now().Microseconds()
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
	text, err := files.ReadRegular(file, maxOutcome, "what has come of a reload")
	if err == nil {
		if err = json.Unmarshal(text, &o); err != nil {
			err = fmt.Errorf("%s: %w", file, err)
		}
	}
	return o, err
}
