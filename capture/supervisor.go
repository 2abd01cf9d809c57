// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/xdma"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/tegra"
)

// Limits of recovery.
const (
	firstPause    = 10 * time.Millisecond // after the first fault; doubles with each further one
	lastPause     = 2 * time.Second
	giveUp        = 30 * time.Second // how long recovery may take by default
	settledFrames = 3                // number of good frames after which the next fault counts as a new one
)

func newRecovery(giveUp time.Duration) pipeline.Recovery {
	return pipeline.Recovery{First: firstPause, Last: lastPause, GiveUp: giveUp}
}

// Limits of the watchdog's interval, which is otherwise four frame periods, and at most a quarter of FrameTimeout.
const (
	watchLeast = 50 * time.Millisecond
	watchMost  = 5 * time.Second
)

const defaultFrameTimeout = time.Second

// supervisor supervises a camera of an FPGA, as the sole owner of its recovery: it stops the engine, releases the
// hardware, backs off, starts again, or ends with the fault. Outputs are supervised in pipeline/supervision.go.
type supervisor struct {
	pipeline.Recovery
	camera  *FPGACamera
	resorts int    // number of resets tried in this recovery
	rested  bool   // the watchdog has seen the camera idle in this attempt
	seen    uint64 // frame count at the watchdog's latest look
	base    uint64 // first frame number of the next session, so that restarts of the camera do not show
}

// run runs sessions until ctx ends or recovery has been fruitless for too long.
func (s *supervisor) run(ctx context.Context, emit func(*pipeline.Frame)) error {
	s.camera.states.to(Starting, nil)
	err := s.Recovery.Run(ctx, func(ctx context.Context) (pipeline.Outcome, error) {
		before := s.camera.frames.Load()
		s.rested = false
		err := s.attempt(ctx, emit)
		if s.rested {
			return pipeline.Settled, err
		}
		return outcomeOf(s.camera.frames.Load() - before), err
	}, s.afterFault)
	s.camera.states.to(Ended, err)
	if errors.Is(err, pipeline.ErrGivenUp) {
		return err
	}
	return onlyBusy(err)
}

// afterFault prepares the next attempt: a restart of the engine, or a new session. It reports whether that attempt may
// follow without a pause.
func (s *supervisor) afterFault(ctx context.Context, fault error) (atOnce bool) {
	c := s.camera
	c.cfg.Recorder.Record(c.cfg.Name, pipeline.EventFault, c.states.last.Load(), uint64(s.Attempts-1))
	if s.Attempts == 1 {
		s.resorts = 0
		if restartable(fault) {
			s.camera.states.to(Restarting, fault)
			return true
		}
	}
	s.camera.states.to(Reopening, fault)
	s.letGo()
	s.resorts = s.resort(ctx, s.resorts, s.Broken)
	return false
}

// resort performs the next reset if a recovery has been fruitless for long enough: the reset of the function after a
// quarter of GiveUp, the FPGA's reset line after half. It returns the number of resets tried so far. Whatever the
// result, the device is reopened afterwards.
func (s *supervisor) resort(ctx context.Context, tried int, since time.Time) int {
	bound := s.camera.cfg.GiveUp / 4
	switch waited := time.Since(since); {
	case tried == 0 && waited > bound:
		s.resetFunction(since)
		return 1
	case tried == 1 && waited > 2*bound:
		s.resetLine(ctx)
		return 2
	}
	return tried
}

// resetFunction performs a PCI Express function level reset, unless another user of the card has done so after since.
func (s *supervisor) resetFunction(since time.Time) {
	c := s.camera
	switch err := c.cfg.Card.resetFunction(since); {
	case err == nil:
		s.camera.states.to(Resetting, nil)
		c.cfg.Logger.Warn("the FPGA's function was reset (function level reset)", "source", c.cfg.Name)
	case errors.Is(err, errors.ErrUnsupported):
		c.cfg.Logger.Info("the FPGA's function has no function level reset", "source", c.cfg.Name)
	default:
		c.cfg.Logger.Error("the function level reset of the FPGA failed", "source", c.cfg.Name, "error", err)
	}
}

// resetLine pulses the FPGA's reset line, if there is one.
func (s *supervisor) resetLine(ctx context.Context) {
	c := s.camera
	if c.cfg.Reset == nil {
		return
	}
	c.cfg.Card.resetting.Lock()
	done, err := c.cfg.Reset(ctx)
	c.cfg.Card.resetting.Unlock()
	switch {
	case err != nil && ctx.Err() == nil:
		c.cfg.Logger.Error("the FPGA's reset line cannot be pulsed", "source", c.cfg.Name, "error", err)
	case done:
		s.camera.states.to(Resetting, nil)
		c.cfg.Logger.Warn("the FPGA's reset line was pulsed", "source", c.cfg.Name)
	}
}

// onlyBusy drops every error except ErrBusy: an engine that does not stop is dangerous, a device that is gone is not.
func onlyBusy(err error) error {
	if errors.Is(err, xdma.ErrBusy) {
		return err
	}
	return nil
}

// restartable reports whether stopping and starting the engine can fix the fault err. All other faults, and those that
// a restart has not fixed, need a new session.
func restartable(err error) bool {
	for _, needsSession := range []error{xdma.ErrBusy, xdma.ErrGone, xdma.ErrReset, fpga.ErrCameraGone, tegra.ErrRevoked} {
		if errors.Is(err, needsSession) {
			return false
		}
	}
	return true
}

// attempt opens a session if there is none, and runs it under the watchdog.
func (s *supervisor) attempt(ctx context.Context, emit func(*pipeline.Frame)) error {
	c := s.camera
	if c.session == nil {
		next, err := c.newSession(ctx)
		if err != nil {
			return err
		}
		c.setSession(next)
		if !c.cfg.Bare {
			c.cfg.Card.mapAgain(next.camera.Timestamp)
		}
	}
	if !c.cfg.Bare {
		c.cfg.Card.mapTime(c.session.camera.Timestamp, false)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var beside sync.WaitGroup
	beside.Go(func() { cancel(s.watch(ctx, c.session)) })
	if !c.cfg.Bare {
		beside.Go(func() { c.session.listen(ctx) })
	}
	err := c.session.run(ctx, emit)
	cancel(nil)
	beside.Wait()
	err = both(err, c.session.ring.Stop())
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return both(cause, err) // the watchdog's finding comes first
	}
	return err
}

// both joins two errors, either of which may be nil, into one error on one line.
func both(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return fmt.Errorf("%w; %w", a, b)
}

// letGo closes the session. It logs errors of closing only as a warning, because the fault itself has already been
// reported.
func (s *supervisor) letGo() {
	c := s.camera
	if err := c.closeSession(); err != nil {
		c.cfg.Logger.Warn("source closed its hardware with errors", "source", c.cfg.Name, "error", err)
	}
}

// watch monitors a session until ctx ends, in which case it returns nil, or something is wrong: a revoked pin, credits
// that could not be given, a device that is gone, or missing frames.
func (s *supervisor) watch(ctx context.Context, session *session) error {
	period, timeout := s.camera.cfg.Rate.Period(), s.camera.cfg.FrameTimeout
	interval := min(max(4*period, watchLeast), watchMost, timeout/4).Round(time.Millisecond)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	quiet := newSilence(interval)
	s.seen = s.camera.frames.Load()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-session.revoked:
			return fmt.Errorf("frame slot (%v): %w", session.why, tegra.ErrRevoked)
		case err := <-session.failed:
			return err
		case <-tick.C:
		}
		silent := quiet.length(time.Now())
		verdict, err := s.checkSession(session)
		switch {
		case err != nil:
			return err
		case verdict == Streaming:
			quiet.end()
			s.camera.states.to(Streaming, nil)
		case verdict == Idle:
			quiet.end()
			s.rested = true
			s.camera.states.to(Idle, nil)
		case silent >= timeout && !session.ring.Pending(): // a restart would lose frames that this process has not yet taken
			return fmt.Errorf("%w: none for %v, in which this process had no processor for %v", ErrStalled,
				(silent + quiet.late).Round(time.Millisecond), quiet.late.Round(time.Millisecond))
		}
	}
}

// checkSession examines a session once and returns its state: Starting if frames should be coming but are not.
func (s *supervisor) checkSession(session *session) (State, error) {
	c := s.camera
	if c.cfg.Bare {
		return s.checkBare(), nil
	}
	n, err := session.camera.Counters()
	if err != nil {
		return 0, err
	}
	frames, taken := c.frames.Load(), n.Sequence
	moved, sensed := frames != s.seen, taken != session.taken
	s.seen, session.taken = frames, taken
	inside := taken - uint64(n.Delivered) - uint64(n.Dropped) - uint64(n.Lost) // frames in the FPGA's memory or in transfer
	switch {
	case moved:
		return Streaming, nil
	case c.cfg.Triggered && !sensed && (inside == 0 || session.camera.Status()&fpga.StatusExposing != 0):
		return Idle, nil
	case c.pool.Leased() >= c.cfg.Slots:
		return Idle, nil // the outputs hold all slots and are at fault
	}
	return Starting, nil
}
