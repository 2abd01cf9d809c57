// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/videodev"
)

// Limits of a driver's calls. A healthy one returns within milliseconds, or at most a second from starting a sensor.
const (
	hangAfter = 5 * time.Second        // a call that lasts longer hangs
	partAfter = 2 * time.Second        // how long Run waits for a call after its context has ended
	hangCheck = 100 * time.Millisecond // interval at which that is looked at
)

// v4l2Supervisor supervises a V4L2 camera, as the sole owner of its recovery: it restarts the stream, reopens the device,
// finds it again after it was unplugged, backs off, or ends with the fault.
type v4l2Supervisor struct {
	pipeline.Recovery
	camera   *V4L2Camera
	identity videodev.Identity
	known    bool      // identity is that of the camera
	next     uint64    // number of the next frame
	frameAt  time.Time // when the latest frame came, to estimate losses
	rested   bool      // the camera was idle in this attempt
}

// run runs sessions until ctx ends or recovery has been fruitless for too long.
func (s *v4l2Supervisor) run(ctx context.Context, emit func(*pipeline.Frame)) error {
	c := s.camera
	c.states.to(Starting, nil)
	err := s.Recovery.Run(ctx, func(ctx context.Context) (pipeline.Outcome, error) {
		before := c.frames.Load()
		s.rested = false
		err := s.attempt(ctx, emit)
		if away(err) {
			s.Broken = time.Now() // nothing is broken: it is waited for without end
		}
		if s.rested {
			return pipeline.Settled, err
		}
		return outcomeOf(c.frames.Load() - before), err
	}, s.afterFault)
	c.states.to(Ended, err)
	if errors.Is(err, pipeline.ErrGivenUp) || errors.Is(err, ErrHangs) {
		return err
	}
	return nil
}

// afterFault prepares the next attempt: a restart of the stream, or a new session. It reports whether that attempt may
// follow without a pause.
func (s *v4l2Supervisor) afterFault(ctx context.Context, fault error) (atOnce bool) {
	c := s.camera
	c.cfg.Recorder.Record(c.cfg.Name, pipeline.EventFault, c.states.last.Load(), uint64(s.Attempts-1))
	if s.Attempts == 1 && errors.Is(fault, ErrStalled) {
		c.states.to(Restarting, fault)
		return true
	}
	c.states.to(Reopening, fault)
	if errors.Is(fault, unix.ENODEV) {
		select {
		case <-time.After(partingPause):
		case <-ctx.Done():
		}
	}
	if err := c.closeSession(); err != nil {
		c.cfg.Logger.Debug("source closed its device with errors", "source", c.cfg.Name, "error", err)
	}
	return false
}

// partingPause is the time between the fault of an unplugged camera and the closing of its device. The kernel may crash if a
// device is closed while its driver still takes it away: in Linux 6.1, v4l2_device_release and media_device_unregister then
// remove the same entity.
const partingPause = 200 * time.Millisecond

// away reports whether a fault means that the camera is unplugged, has no signal, or is used by another process.
func away(fault error) bool {
	for _, e := range []error{ErrHeld, videodev.ErrNoDevice, videodev.ErrSignal, unix.ENODEV, unix.ENXIO, unix.ENOENT} {
		if errors.Is(fault, e) {
			return true
		}
	}
	return false
}

// attempt opens a session if there is none, and runs it.
func (s *v4l2Supervisor) attempt(ctx context.Context, emit func(*pipeline.Frame)) error {
	c := s.camera
	if err := c.stillHung(); err != nil {
		return err
	}
	if c.current() == nil {
		if err := c.open(ctx); err != nil {
			return err
		}
	}
	session := c.current()
	return c.bounded(ctx, &boundedWork{
		do:    func() error { return both(session.run(ctx, emit), session.stop()) },
		given: session.abandon, late: session.close,
	}, &session.watched)
}

func (c *V4L2Camera) current() *v4l2Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// open opens a session. The first one decides the format, and makes the slots.
func (c *V4L2Camera) open(ctx context.Context) error {
	s := &v4l2Session{camera: c}
	do := func() error {
		err := s.open()
		if err != nil {
			err = both(err, s.close())
		}
		return err
	}
	err := c.bounded(ctx, &boundedWork{do: do, given: s.abandon, late: s.close}, &s.watched, &s.settings.watched)
	if err != nil {
		return fmt.Errorf("%w %s: %w", ErrV4L2, c.cfg.Device, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session, c.how = s, s.how()
	return nil
}

// closeSession closes the session, if there is one.
func (c *V4L2Camera) closeSession() error {
	c.mu.Lock()
	s := c.session
	c.session = nil
	c.mu.Unlock()
	if s == nil {
		return nil
	}
	return c.bounded(context.Background(), &boundedWork{do: s.close, given: s.abandon}, &s.watched, &s.settings.watched)
}

// A hungCall is work that has not returned from a call of the driver.
type hungCall struct {
	what string
	done chan error
}

// stillHung returns an error that wraps ErrHangs if the driver has not returned from a call that was given up, and forgets
// the call otherwise.
func (c *V4L2Camera) stillHung() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hung == nil {
		return nil
	}
	select {
	case <-c.hung.done:
		c.hung = nil
		for i := range c.slots {
			if c.slots[i] == slotQueued { // the device is closed
				c.slots[i] = slotFree
			}
		}
		return nil
	default:
		return fmt.Errorf("%w: %s of %s, and it may still write into the camera's memory: unload the driver, or restart the machine",
			ErrHangs, c.hung.what, c.cfg.Device)
	}
}

// A boundedWork is work with a device that may hang.
type boundedWork struct {
	do    func() error
	given func(*hungCall) // gives the work up: it must have no effect any more, and hungCall is remembered until it has returned
	late  func() error    // frees what the work has left, when it returns after it was given up; may be nil

	turn   sync.Mutex // guards the rest: the work either ends in time, or is given up
	over   bool
	gaveUp bool
}

// run does the work.
func (w *boundedWork) run() error {
	err := w.do()
	w.turn.Lock()
	w.over = true
	w.turn.Unlock()
	if w.gaveUp && w.late != nil {
		err = both(err, w.late())
	}
	return err
}

// givenUp reports whether the work was given up.
func (w *boundedWork) givenUp() bool {
	w.turn.Lock()
	defer w.turn.Unlock()
	return w.gaveUp
}

// giveUp gives the work up, and reports whether that was before its end.
func (w *boundedWork) giveUp(call *hungCall) bool {
	w.turn.Lock()
	defer w.turn.Unlock()
	if w.over {
		return false
	}
	w.gaveUp = true
	w.given(call)
	return true
}

// bounded does work with a device until it is done, or until the driver has been in one call for too long: then the work
// is given up, and bounded returns ErrHangs.
func (c *V4L2Camera) bounded(ctx context.Context, work *boundedWork, watches ...*watchedDevice) error {
	done := make(chan error, 1)
	go func() {
		done <- work.run()
		close(done)
	}()
	tick := time.NewTicker(hangCheck)
	defer tick.Stop()
	ended := ctx.Done()
	limit := c.hangAfter
	for {
		select {
		case err := <-done:
			return err
		case <-ended:
			limit, ended = partAfter, nil
		case <-tick.C:
		}
		for _, w := range watches {
			if what, since := w.call(); what != "" && since > limit && work.giveUp(&hungCall{what, done}) {
				return fmt.Errorf("%w: %s of %s has lasted %v", ErrHangs, what, c.cfg.Device, since.Round(time.Millisecond))
			}
		}
	}
}

// find returns the device file of the camera: the configured one, or, if another device or none is there now, the one that
// the camera has got instead.
func (s *v4l2Supervisor) find() (path string, number videodev.Number, err error) {
	c := s.camera
	number, err = c.host.Number(c.cfg.Device)
	if err == nil {
		id, unknown := c.host.Identify(number)
		switch {
		case !s.known:
			s.identity, s.known = id, unknown == nil
			return c.cfg.Device, number, nil
		case unknown != nil, id.Same(s.identity):
			return c.cfg.Device, number, nil
		}
	} else if !s.known {
		return "", number, err
	}
	path, missing := c.host.Find(s.identity)
	if missing != nil {
		return "", number, both(missing, err)
	}
	number, err = c.host.Number(path)
	return path, number, err
}

// explain adds to the error of a device that is busy who holds it, and what the user can do about it.
func (s *v4l2Session) explain(err error) error {
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	mine := 0
	if s.device != nil {
		mine = 1
	}
	var others []string
	twice := false
	holders, all := s.camera.host.Holders(s.number)
	for _, h := range holders {
		switch {
		case h.Process != os.Getpid():
			others = append(others, h.String())
		case h.Times > mine:
			twice = true
		}
	}
	switch {
	case len(others) > 0:
		return fmt.Errorf("%w: %s: end it: %w", ErrHeld, strings.Join(others, ", "), err)
	case twice:
		return fmt.Errorf("%w: %w", ErrTwice, err)
	case !all:
		return fmt.Errorf("%w (which one, only root can see): end it: %w", ErrHeld, err)
	}
	return fmt.Errorf("no other process has it open: its driver, or another device behind the same hardware, is busy: %w", err)
}
