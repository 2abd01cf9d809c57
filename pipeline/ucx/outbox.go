// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"fmt"
	"sync"
)

// An outbox holds the messages sent while the worker's goroutine was awake or another goroutine held the worker. The
// worker's goroutine sends them, or else the next caller of Send. So Send never waits until the worker has made
// progress, and the worker's goroutine never waits for Send.
type outbox struct {
	mu    sync.Mutex
	list  []posted
	taken []posted // previous list, kept to reuse the memory of its headers
	ended bool
}

// A posted message waits to be sent.
type posted struct {
	to      *Endpoint
	message Outgoing
	header  []byte
	done    func(error)
}

// A sent message is one from the outbox that was finished, or failed, when it was passed to the library.
type sent struct {
	done func(error)
	err  error
}

// post leaves a message for the next goroutine that holds the worker. It returns ErrClosed if the outbox is closed.
func (w *Worker) post(e *Endpoint, m *Outgoing, done func(error)) error {
	o := &w.outbox
	o.mu.Lock()
	if o.ended {
		o.mu.Unlock()
		return ErrClosed
	}
	n := len(o.list)
	if n < cap(o.list) {
		o.list = o.list[:n+1]
	} else {
		o.list = append(o.list, posted{})
	}
	p := &o.list[n]
	p.to, p.message, p.done = e, *m, done
	p.header = append(p.header[:0], m.Header...)
	p.message.Header = p.header
	o.mu.Unlock()
	if w.sleeping.Load() { // the worker's goroutine has not seen the message
		w.mu.Lock()
		w.wake()
		w.mu.Unlock()
	}
	return nil
}

// waits reports whether there is a message.
func (o *outbox) waits() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.list) > 0
}

// closeIfEmpty closes the outbox if it is empty, and reports whether it did.
func (o *outbox) closeIfEmpty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = len(o.list) == 0
	return o.ended
}

// sendPosted sends the messages of the outbox. The worker's lock must be held.
func (w *Worker) sendPosted() {
	o := &w.outbox
	o.mu.Lock()
	if len(o.list) == 0 {
		o.mu.Unlock()
		return
	}
	list := o.list
	o.list, o.taken = o.taken[:0], list
	o.mu.Unlock()
	for i := range list {
		p := &list[i]
		under, err := p.to.send(&p.message, p.done)
		if (err != nil || under == 0) && p.done != nil {
			w.events = append(w.events, event{sent: &sent{p.done, err}})
		}
		p.to, p.message, p.done = nil, Outgoing{}, nil
	}
	if w.sleeping.Load() && len(w.events) > 0 {
		w.wake()
	}
}

func headerError(m *Outgoing, w *Worker) error {
	return fmt.Errorf("%w: %d bytes, at most %d", ErrHeader, len(m.Header), w.maxHeader)
}
