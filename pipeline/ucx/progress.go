// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// An event is what a callback has put aside. One of the fields is set.
type event struct {
	request *request
	message *Message
	conn    *ConnRequest
	failed  *Endpoint
}

const (
	// progressAtOnce is how often progress is made before the lock is free for others.
	progressAtOnce = 64
	// refusals is how often in a row the library may refuse to be armed, which it does while it waits for room in the shared memory
	// of a peer. From then on the goroutine sleeps for pause each time: such a peer may be stopped for long.
	refusals = 200
	pause    = time.Millisecond
	// lingering is how long a worker that is being closed waits for what it has to end.
	lingering = time.Second
)

// run makes progress until the worker is closed and nothing is under way.
func (w *Worker) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(w.stopped)
	var events []event
	var deadline time.Time
	for refused := 0; ; {
		w.mu.Lock()
		w.sleeping = false
		idle := w.advance()
		if w.closed && deadline.IsZero() {
			deadline = time.Now().Add(lingering)
		}
		if w.closed && len(w.events) == 0 && (idle && len(w.free) == len(w.requests) || time.Now().After(deadline)) {
			w.destroy()
			w.mu.Unlock()
			w.unregister()
			w.abandon()
			return
		}
		wait := time.Duration(0)
		if idle && len(w.events) == 0 {
			wait, refused = w.arm(refused)
		}
		events, w.events = w.events, events[:0]
		w.sleeping = wait != 0
		w.mu.Unlock()
		if wait != 0 {
			w.sleep(wait)
			continue
		}
		w.dispatch(events)
	}
}

// advance makes progress until something is put aside, and reports whether there was nothing to do.
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

// arm asks the library to make fd readable on the next event, and returns how long to wait for it: 0 if not, negative for ever.
func (w *Worker) arm(refused int) (time.Duration, int) {
	if Status(int8(w.call(symWorkerArm, w.handle))) == ok {
		if w.closed {
			return pause, 0
		}
		return -1, 0
	}
	if refused++; refused > refusals {
		return pause, refused
	}
	return 0, refused
}

func (w *Worker) sleep(wait time.Duration) {
	fds := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}
	ms := -1
	if wait > 0 {
		ms = int(wait / time.Millisecond)
	}
	unix.Poll(fds, ms) // an interruption is an event, too
}

// dispatch calls the functions of the user, without the lock, and gives back what they have not kept.
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
		}
		events[i] = event{}
	}
}

// destroy ends the worker in the library.
func (w *Worker) destroy() {
	w.library.call(symWorkerDestroy, w.handle)
	w.handle = 0
}

// abandon ends the operations that the library has not ended.
func (w *Worker) abandon() {
	for _, r := range w.requests {
		if r.active {
			r.handle, r.status = 0, ErrCanceled
			r.finish()
		}
	}
}
