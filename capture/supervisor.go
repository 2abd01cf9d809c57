// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/xdma"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/tegra"
)

// A State is what a supervised source is doing.
type State int

const (
	Starting   State = iota // engine and camera are being started
	Streaming               // frames come
	Idle                    // nothing to say: an untriggered camera, or outputs that hold all slots
	Restarting              // the engine is stopped and started again
	Reopening               // everything is closed and opened again, after a pause
	Resetting               // the same, and the function was reset or the FPGA's reset line pulsed
	Ended                   // stopped, or given up
	numStates
)

func (s State) String() string {
	return [...]string{"starting", "streaming", "idle", "restarting", "reopening", "resetting", "ended"}[s]
}

// Bounds of recovery.
const (
	firstPause    = 10 * time.Millisecond // after the first fault; it doubles
	lastPause     = 2 * time.Second
	giveUp        = 30 * time.Second // how long recovery may take, unless the configuration says otherwise
	settledFrames = 3                // good frames after which the next fault is a new one
)

// newRecovery returns the recovery of an engine.
func newRecovery(giveUp time.Duration) pipeline.Recovery {
	return pipeline.Recovery{First: firstPause, Last: lastPause, GiveUp: giveUp}
}

// Bounds of the time between looks of the watchdog; else it is four frame periods, and a quarter of FrameTimeout at most.
const (
	watchLeast = 50 * time.Millisecond
	watchMost  = 5 * time.Second
)

const defaultFrameTimeout = time.Second

// supervisor is the one owner of a camera's recovery: it stops the engine, lets go, backs off, starts again, or ends
// with the fault.
type supervisor struct {
	pipeline.Recovery
	camera  *FPGACamera
	state   State
	told    State // to the log
	faults  pipeline.FaultLog
	resorts int    // resets that were tried in this recovery
	rested  bool   // the watchdog has seen it idle in this session
	seen    uint64 // frames when the watchdog looked last
	base    uint64 // the next session numbers its frames from here: restarts of the camera do not show
}

// to makes a transition, and tells the log, the flight recorder and the counters.
func (s *supervisor) to(state State, why error) {
	c, changed := s.camera, s.state != state
	if !changed && why == nil {
		s.tell(state, changed)
		return
	}
	s.state = state
	c.counters[state].Add(1)
	c.state.Store(int32(state))
	c.cfg.Recorder.Record(c.cfg.Name, pipeline.EventState, c.last.Load(), uint64(state))
	if why == nil {
		s.tell(state, changed)
		return
	}
	level := slog.LevelDebug
	about := []any{"source", c.cfg.Name, "after frame", c.last.Load(), "fault", why}
	if left, due := s.faults.Due(state.String(), time.Now()); due {
		level, s.told = slog.LevelWarn, state
		about = pipeline.Unlogged(about, left)
	}
	c.cfg.Logger.Log(context.Background(), level, "source "+state.String(), about...)
}

// tell tells the log of a state that is no fault, while faults come again and again only when they have ended.
func (s *supervisor) tell(state State, changed bool) {
	level := slog.LevelDebug
	if s.told != state && s.faults.Calm(time.Now()) {
		level, s.told = slog.LevelInfo, state
	} else if !changed {
		return
	}
	s.camera.cfg.Logger.Log(context.Background(), level, "source "+state.String(), "source", s.camera.cfg.Name)
}

// run keeps sessions going until ctx ends or recovery has been fruitless for too long.
func (s *supervisor) run(ctx context.Context, emit func(*pipeline.Frame)) error {
	s.to(Starting, nil)
	err := s.Recovery.Run(ctx, func(ctx context.Context) (pipeline.Outcome, error) {
		before := s.camera.frames.Load()
		s.rested = false
		err := s.attempt(ctx, emit)
		if s.rested {
			return pipeline.Settled, err
		}
		return outcomeOf(s.camera.frames.Load() - before), err
	}, s.afterFault)
	s.to(Ended, err)
	if errors.Is(err, pipeline.ErrGivenUp) {
		return err
	}
	return onlyBusy(err)
}

// outcomeOf judges an attempt by the frames that were good.
func outcomeOf(frames uint64) pipeline.Outcome {
	switch {
	case frames == 0:
		return pipeline.Fruitless
	case frames < settledFrames:
		return pipeline.Fleeting
	}
	return pipeline.Settled
}

// afterFault prepares for the next attempt: a restart of the engine, or a session that is opened again.
func (s *supervisor) afterFault(ctx context.Context, fault error) (atOnce bool) {
	c := s.camera
	c.cfg.Recorder.Record(c.cfg.Name, pipeline.EventFault, c.last.Load(), uint64(s.Attempts-1))
	if s.Attempts == 1 {
		s.resorts = 0
		if restartable(fault) {
			s.to(Restarting, fault)
			return true
		}
	}
	s.to(Reopening, fault)
	s.letGo()
	s.resorts = s.resort(ctx, s.resorts, s.Broken)
	return false
}

// resort takes the next reset when a recovery has been fruitless for long enough: that of the function after a quarter of GiveUp,
// the FPGA's reset line after half. It returns how many were tried. Whatever comes of it, the device is opened again afterwards.
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

// resetFunction is the reset that PCI Express has for a function alone.
func (s *supervisor) resetFunction(since time.Time) {
	c := s.camera
	switch err := c.cfg.Card.resetFunction(since); {
	case err == nil:
		s.to(Resetting, nil)
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
	done, err := c.cfg.Reset(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		c.cfg.Logger.Error("the FPGA's reset line cannot be pulsed", "source", c.cfg.Name, "error", err)
	case done:
		s.to(Resetting, nil)
		c.cfg.Logger.Warn("the FPGA's reset line was pulsed", "source", c.cfg.Name)
	}
}

// onlyBusy is what of an error matters at the end: an engine that does not stop. A device that has gone does no harm.
func onlyBusy(err error) error {
	if errors.Is(err, xdma.ErrBusy) {
		return err
	}
	return nil
}

// restartable says whether stopping and starting the engine can fix what err names. Everything else, and what a
// restart has not fixed, needs a new session.
func restartable(err error) bool {
	for _, needsSession := range []error{xdma.ErrBusy, xdma.ErrGone, xdma.ErrReset, fpga.ErrCameraGone, tegra.ErrRevoked} {
		if errors.Is(err, needsSession) {
			return false
		}
	}
	return true
}

// attempt makes a session if there is none and runs it under the watchdog.
func (s *supervisor) attempt(ctx context.Context, emit func(*pipeline.Frame)) error {
	c := s.camera
	if c.session == nil {
		next, err := c.newSession(ctx)
		if err != nil {
			return err
		}
		c.setSession(next)
		c.clock.forget()
	}
	if !c.cfg.Bare && c.clock.due(time.Now()) {
		c.clock.Update(c.session.camera.Timestamp)
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
		return both(cause, err) // what the watchdog saw
	}
	return err
}

// both is one error of two, of which either may be nil, on one line.
func both(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return fmt.Errorf("%w; %w", a, b)
}

// letGo closes the session. What it says has been said by the fault, but for an engine that does not stop.
func (s *supervisor) letGo() {
	c := s.camera
	if err := c.closeSession(); err != nil {
		c.cfg.Logger.Warn("source closed its hardware with errors", "source", c.cfg.Name, "error", err)
	}
}

// watch looks after a session until ctx ends or something is wrong: memory that was revoked, credits that could not be
// given, a device that has gone, frames that do not come though they should.
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
		silent := quiet.look(time.Now())
		verdict, err := s.look(session)
		switch {
		case err != nil:
			return err
		case verdict == Streaming:
			quiet.end()
			s.to(Streaming, nil)
		case verdict == Idle:
			quiet.end()
			s.rested = true
			s.to(Idle, nil)
		case silent >= timeout && !session.ring.Pending(): // what this process has not taken yet a restart would lose
			return fmt.Errorf("%w: none for %v, in which this process had no processor for %v", ErrStalled,
				(silent + quiet.late).Round(time.Millisecond), quiet.late.Round(time.Millisecond))
		}
	}
}

// silence measures how long no frame has come, less the time for which this process itself was held up: no frame can be taken then,
// and a model of the FPGA makes none.
type silence struct {
	interval    time.Duration // between looks
	since, last time.Time     // a frame; a look
	late        time.Duration // by which looks were late, since then
}

func newSilence(interval time.Duration) silence {
	now := time.Now()
	return silence{interval: interval, since: now, last: now}
}

// look returns how long the silence has lasted.
func (q *silence) look(now time.Time) time.Duration {
	if late := now.Sub(q.last) - q.interval; late > q.interval/4 {
		q.late += late
	}
	q.last = now
	return now.Sub(q.since) - q.late
}

// end ends the silence.
func (q *silence) end() { q.since, q.late = q.last, 0 }

// look is one look of the watchdog. Starting means that it should be streaming and is not.
func (s *supervisor) look(session *session) (State, error) {
	c := s.camera
	if c.cfg.Bare {
		return s.lookBare(), nil
	}
	n, err := session.camera.Counters()
	if err != nil {
		return 0, err
	}
	frames, taken := c.frames.Load(), n.Sequence
	moved, sensed := frames != s.seen, taken != session.taken
	s.seen, session.taken = frames, taken
	inside := taken - uint64(n.Delivered) - uint64(n.Dropped) - uint64(n.Lost) // frames in the FPGA's memory, or on their way
	switch {
	case moved:
		return Streaming, nil
	case c.cfg.Triggered && !sensed && (inside == 0 || session.camera.Status()&fpga.StatusExposing != 0):
		return Idle, nil
	case c.pool.Leased() >= c.cfg.Slots:
		return Idle, nil // the outputs hold all slots: theirs is the fault
	}
	return Starting, nil
}
