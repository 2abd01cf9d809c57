// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// An event is something for which the worker's goroutine has to call a function of the user. Exactly one field is set.
type event struct {
	request *request
	message *Message
	conn    *ConnRequest
	failed  *Endpoint
	sent    *sent
}

const (
	// progressAtOnce limits how many times progress is made before the lock is released for other goroutines.
	progressAtOnce = 64
	// spin is the time for which the goroutine polls without sleeping while operations are in progress. Waking up takes
	// about as long.
	spin = 100 * time.Microsecond
	// pause limits how long the goroutine sleeps while the library refuses to be armed, as it does while waiting for
	// room in the shared memory of a peer, which may be stopped for a long time; or while the worker is being closed.
	pause = time.Millisecond
	// lingering limits how long a worker that is being closed waits for its operations to end.
	lingering = time.Second
)

// makeProgress makes progress until the worker is closed and no operation is in progress, but for at most lingering
// after the worker was closed. Then it destroys the worker.
func (w *Worker) makeProgress() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(w.stopped)
	var events []event
	var deadline time.Time
	var last time.Time // when it was first found idle; zero if it was not
	for {
		w.mu.Lock()
		w.sleeping.Store(false)
		w.sendPosted()
		idle := w.advance() && len(w.events) == 0
		var now time.Time
		if idle || w.closed {
			now = time.Now()
		}
		if !idle {
			last = time.Time{}
		} else if last.IsZero() {
			last = now
		}
		if w.closed && deadline.IsZero() {
			deadline = now.Add(lingering)
		}
		if w.closed && len(w.events) == 0 && (idle && len(w.free) == len(w.requests) || now.After(deadline)) && w.outbox.closeIfEmpty() {
			w.destroy()
			w.mu.Unlock()
			w.unregister()
			w.abandon()
			return
		}
		wait := time.Duration(0)
		if idle {
			wait = w.rest(now.Sub(last))
		}
		events, w.events = w.events, events[:0]
		w.sleeping.Store(wait != 0)
		if wait != 0 && w.outbox.waits() {
			w.sleeping.Store(false)
			wait = 0
		}
		w.mu.Unlock()
		switch {
		case wait != 0:
			w.sleep(wait)
		case idle:
			unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // the peer may need this CPU
		default:
			w.dispatch(events)
		}
	}
}

// advance makes progress until nothing is left to do or an event is recorded, but at most progressAtOnce times. It
// reports whether nothing is left to do.
func (w *Worker) advance() bool {
	for range progressAtOnce {
		if uint32(w.call(symWorkerProgress, w.handle)) == 0 {
			return true
		}
		if len(w.events) > 0 {
			return false
		}
	}
	return false
}

// rest returns how long the goroutine may sleep, given the time for which it has been idle: 0 to poll again
// immediately, negative to sleep until fd is readable.
func (w *Worker) rest(idle time.Duration) time.Duration {
	if idle < spin && len(w.free) < len(w.requests) {
		return 0
	}
	armed := Status(int8(w.call(symWorkerArm, w.handle))) == ok
	switch {
	case armed && w.closed:
		return pause
	case armed:
		return -1
	case idle < spin:
		return 0
	}
	return min(idle/4, pause)
}

func (w *Worker) sleep(wait time.Duration) {
	fds := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}
	var limit *unix.Timespec
	if wait > 0 {
		t := unix.NsecToTimespec(wait.Nanoseconds())
		limit = &t
	}
	unix.Ppoll(fds, limit, nil) // an interruption counts as an event
}

// dispatch calls the user's functions, without the lock, and recycles what they have not kept.
func (w *Worker) dispatch(events []event) {
	for i := range events {
		switch ev := &events[i]; {
		case ev.request != nil:
			ev.request.finish()
		case ev.message != nil:
			w.deliver(ev.message)
		case ev.conn != nil:
			ev.conn.listener.accept(ev.conn)
		case ev.failed != nil:
			ev.failed.report()
		case ev.sent != nil:
			ev.sent.done(ev.sent.err)
		}
		events[i] = event{}
	}
}

// destroy destroys the worker in the library.
func (w *Worker) destroy() {
	w.library.call(symWorkerDestroy, w.handle)
	w.handle = 0
}

// abandon ends the operations that the library has not finished, with an error.
func (w *Worker) abandon() {
	for _, r := range w.requests {
		if r.active {
			r.handle, r.status = 0, ErrCanceled
			r.finish()
		}
	}
}
