// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"fmt"
	"testing"
)

// TestOutbox: what is sent while the worker is busy does not wait for it, and arrives in order, also before the connection is closed.
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

// TestOutboxErrors: messages that cannot be sent are told of, whoever has the worker.
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

// busy takes the worker, until the caller gives its lock back.
func busy(w *Worker) {
	w.mu.Lock()
	w.wake() // its goroutine waits for the lock
}
