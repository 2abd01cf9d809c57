// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"
)

// patience limits how long a test waits for something that takes no time on an idle machine.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(peerVariable) != "" {
		os.Exit(peer())
	}
	os.Exit(m.Run())
}

func open(t testing.TB) *Context {
	t.Helper()
	c, err := Open(Config{})
	if err != nil {
		t.Fatalf("%v (make setup-test installs UCX)", err)
	}
	t.Cleanup(func() { tidy(t, c.Close()) })
	return c
}

// tidy reports an error if something was left open.
func tidy(t testing.TB, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func worker(t testing.TB, c *Context) *Worker {
	t.Helper()
	w, err := c.NewWorker()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tidy(t, w.Close()) })
	return w
}

var loopback = netip.MustParseAddrPort("127.0.0.1:0")

func listen(t testing.TB, w *Worker, addr netip.AddrPort, accept func(*ConnRequest)) *Listener {
	t.Helper()
	l, err := w.Listen(addr, accept)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tidy(t, l.Close()) })
	return l
}

// An end is an endpoint together with a channel for its failure.
type end struct {
	*Endpoint
	failed chan error
}

func options() (EndpointOptions, chan error) {
	failed := make(chan error, 2)
	return EndpointOptions{Failed: func(err error) { failed <- err }}, failed
}

func dial(t testing.TB, w *Worker, to netip.AddrPort) end {
	t.Helper()
	o, failed := options()
	e, err := w.Dial(to, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Abort)
	return end{e, failed}
}

func accept(t testing.TB, r *ConnRequest, w *Worker) end {
	t.Helper()
	o, failed := options()
	e, err := r.AcceptOn(w, o)
	if err != nil {
		t.Error(err)
		return end{failed: failed}
	}
	t.Cleanup(e.Abort)
	return end{e, failed}
}

// joined connects a to b through a listener.
func joined(t testing.TB, a, b *Worker) (client, server end) {
	t.Helper()
	requests := make(chan *ConnRequest, 1)
	l := listen(t, b, loopback, func(r *ConnRequest) { requests <- r })
	client = dial(t, a, l.Addr())
	return client, accept(t, next(t, requests, "connection request"), b)
}

// next returns the next value from a channel.
func next[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s after %v", what, patience)
	}
	panic("unreachable")
}

// A parcel is the content of a message that has arrived.
type parcel struct {
	id           uint16
	header, data []byte
	rendezvous   bool
	from         *Endpoint
	err          error
}

// collect sends the messages with that ID to a channel, with their data.
func collect(t testing.TB, w *Worker, id uint16) <-chan parcel {
	t.Helper()
	got := make(chan parcel, 4096)
	handle(t, w, id, func(m *Message) {
		p := parcel{id: m.ID, header: bytes.Clone(m.Header), data: bytes.Clone(m.Data), rendezvous: m.Rendezvous, from: m.Endpoint}
		if !m.Rendezvous {
			got <- p
			return
		}
		p.data = make([]byte, m.Length)
		if err := m.Receive([][]byte{p.data}, nil, func(n int, err error) {
			p.data, p.err = p.data[:n], err
			got <- p
		}); err != nil {
			t.Error(err)
		}
	})
	return got
}

func handle(t testing.TB, w *Worker, id uint16, f func(*Message)) {
	t.Helper()
	if err := w.Handle(id, f); err != nil {
		t.Fatal(err)
	}
}

// send sends a message, and returns the channel for its result.
func send(t testing.TB, e *Endpoint, m *Outgoing) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	if err := e.Send(m, func(err error) { done <- err }); err != nil {
		t.Fatal(err)
	}
	return done
}

// pattern returns n bytes with a long period.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*131 + i>>8*17)
	}
	return b
}

// within returns a context that ends after d.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func wantError(t testing.TB, err error, want ...error) {
	t.Helper()
	if !slices.ContainsFunc(want, func(w error) bool { return errors.Is(err, w) }) {
		t.Errorf("%v, want %v", err, want)
	}
}

// refusal returns the reason why a message is not sent, at once or, if the worker is busy, later.
func refusal(t testing.TB, e *Endpoint, m *Outgoing) error {
	t.Helper()
	done := make(chan error, 1)
	if err := e.Send(m, func(err error) { done <- err }); err != nil {
		return err
	}
	return next(t, done, "end of the send")
}
