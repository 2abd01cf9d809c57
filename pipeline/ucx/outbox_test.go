// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"fmt"
	"testing"
)

// TestOutbox checks that sending does not wait for a busy worker, and that these messages arrive in order, even when
// the connection is closed right away.
func TestOutbox(t *testing.T) {
	c := open(t)
	a, b := worker(t, c), worker(t, c)
	got := collect(t, b, 7)
	client, _ := joined(t, a, b)
	const n = 100
	var done []<-chan error
	busy(a)
	for i := range n {
		done = append(done, send(t, client.Endpoint, &Outgoing{ID: 7, Header: fmt.Appendf(nil, "%d", i), Protocol: Eager}))
	}
	a.mu.Unlock()
	done = append(done, send(t, client.Endpoint, &Outgoing{ID: 7, Header: fmt.Appendf(nil, "%d", n), Protocol: Eager}))
	for i := range n + 1 {
		tidy(t, next(t, done[i], "the end of a message"))
		if p := next(t, got, "a message"); string(p.header) != fmt.Sprint(i) {
			t.Fatalf("message %q came instead of %d", p.header, i)
		}
	}
	busy(a)
	last := send(t, client.Endpoint, &Outgoing{ID: 7, Header: []byte("last"), Protocol: Eager})
	a.mu.Unlock()
	tidy(t, client.Close(t.Context()))
	tidy(t, next(t, last, "the end of the last message"))
	if p := next(t, got, "the last message"); string(p.header) != "last" {
		t.Errorf("message %q came last", p.header)
	}
}

// TestOutboxErrors checks that an error is reported for messages that cannot be sent, no matter who holds the worker.
func TestOutboxErrors(t *testing.T) {
	c := open(t)
	a, b := worker(t, c), worker(t, c)
	client, _ := joined(t, a, b)
	busy(a)
	wantError(t, client.Send(&Outgoing{ID: 7, Header: make([]byte, a.MaxHeader()+1)}, nil), ErrHeader)
	a.mu.Unlock()
	client.Abort()
	busy(a)
	late := send(t, client.Endpoint, &Outgoing{ID: 7, Protocol: Eager})
	a.mu.Unlock()
	wantError(t, next(t, late, "the end of a message on a closed connection"), ErrClosed)
	tidy(t, a.Close())
	a.mu.Lock() // its goroutine has ended
	defer a.mu.Unlock()
	wantError(t, refusal(t, client.Endpoint, &Outgoing{ID: 7}), ErrClosed)
}

// busy holds the worker until the caller releases its lock.
func busy(w *Worker) {
	w.mu.Lock()
	w.wake() // its goroutine waits for the lock
}
