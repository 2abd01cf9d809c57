// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapped returns memory outside the Go heap.
func mapped(t testing.TB, size int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tidy(t, unix.Munmap(b)) })
	return b
}

func at(b []byte) unsafe.Pointer { return unsafe.Pointer(&b[0]) }

// two returns two connected workers.
func two(t testing.TB) (a, b *Worker, client, server end) {
	t.Helper()
	c := open(t)
	a, b = worker(t, c), worker(t, c)
	client, server = joined(t, a, b)
	return a, b, client, server
}

func protocols(t *testing.T) {
	t.Setenv("UCX_RNDV_THRESH", "16k")
	_, b, client, _ := two(t)
	got := collect(t, b, 1)
	for _, c := range []struct {
		p    Protocol
		size int
		want bool
	}{
		{Eager, 0, false},
		{Eager, 1, false},
		{Eager, 1 << 20, false},
		{Rendezvous, 1 << 12, true},
		{Rendezvous, 1 << 22, true},
		{Auto, 1 << 12, false},
		{Auto, 1 << 16, true},
	} {
		sent := send(t, client.Endpoint, &Outgoing{ID: 1, Data: [][]byte{pattern(c.size)}, Protocol: c.p})
		p := next(t, got, "message")
		if p.rendezvous != c.want || p.err != nil || !bytes.Equal(p.data, pattern(c.size)) {
			t.Errorf("protocol %d, %d bytes: rendezvous %v, %d bytes, error %v", c.p, c.size, p.rendezvous, len(p.data), p.err)
		}
		tidy(t, next(t, sent, "end of the send"))
	}
}

func headers(t *testing.T) {
	a, b, client, _ := two(t)
	got := collect(t, b, 1)
	for _, n := range []int{0, 1, 64, 256, a.MaxHeader()} {
		for _, protocol := range []Protocol{Eager, Rendezvous} {
			send(t, client.Endpoint, &Outgoing{ID: 1, Header: pattern(n), Data: [][]byte{pattern(100)}, Protocol: protocol})
			if p := next(t, got, "message"); !bytes.Equal(p.header, pattern(n)) || !bytes.Equal(p.data, pattern(100)) {
				t.Errorf("a header of %d bytes arrives as %d, data of 100 bytes as %d", n, len(p.header), len(p.data))
			}
		}
	}
	wantError(t, client.Send(&Outgoing{ID: 1, Header: pattern(a.MaxHeader() + 1)}, nil), ErrHeader)
}

func parts(t *testing.T) {
	_, b, client, _ := two(t)
	whole := pattern(300_000)
	split := [][]byte{whole[:1], whole[1:1000], whole[1000:1000], whole[1000:200_000], whole[200_000:]}
	got := collect(t, b, 1)
	for _, protocol := range []Protocol{Eager, Rendezvous} {
		send(t, client.Endpoint, &Outgoing{ID: 1, Data: split, Protocol: protocol})
		if p := next(t, got, "message"); p.err != nil || !bytes.Equal(p.data, whole) {
			t.Errorf("protocol %d: %d bytes, error %v", protocol, len(p.data), p.err)
		}
	}
	received := make(chan error, 1)
	into := make([]byte, len(whole)+100)
	handle(t, b, 2, func(m *Message) {
		if err := m.Receive([][]byte{into[:70_000], into[70_100:]}, nil, func(n int, err error) { received <- err }); err != nil {
			t.Error(err)
		}
	})
	send(t, client.Endpoint, &Outgoing{ID: 2, Data: split, Protocol: Rendezvous})
	tidy(t, next(t, received, "data"))
	if !bytes.Equal(into[:70_000], whole[:70_000]) || !bytes.Equal(into[70_100:], whole[70_000:]) {
		t.Error("the data differs")
	}
}

func handlers(t *testing.T) {
	_, b, client, server := two(t)
	one, other := collect(t, b, 1), collect(t, b, 65535)
	for range 2 {
		send(t, client.Endpoint, &Outgoing{ID: 1, Data: [][]byte{pattern(1)}})
		send(t, client.Endpoint, &Outgoing{ID: 65535, Data: [][]byte{pattern(2)}})
		p, q := next(t, one, "message 1"), next(t, other, "message 65535")
		if p.id != 1 || len(p.data) != 1 || q.id != 65535 || len(q.data) != 2 || p.from != server.Endpoint {
			t.Errorf("%+v, %+v", p, q)
		}
	}
	handle(t, b, 1, nil)
	send(t, client.Endpoint, &Outgoing{ID: 1, Data: [][]byte{pattern(1)}}) // dropped
	send(t, client.Endpoint, &Outgoing{ID: 65535})
	next(t, other, "message after one that is dropped")
	if len(one) > 0 {
		t.Error("a message came to a function that was taken away")
	}
}

func nothingToFetch(t *testing.T) {
	_, b, client, _ := two(t)
	refused := make(chan error, 1)
	handle(t, b, 1, func(m *Message) { refused <- m.Receive([][]byte{make([]byte, m.Length)}, nil, nil) })
	send(t, client.Endpoint, &Outgoing{ID: 1, Data: [][]byte{pattern(100)}, Protocol: Eager})
	wantError(t, next(t, refused, "message"), ErrNotRendezvous)
}

func dropped(t *testing.T) {
	_, b, client, _ := two(t)
	came := make(chan int, 1)
	handle(t, b, 1, func(m *Message) { came <- m.Length })
	sent := send(t, client.Endpoint, &Outgoing{ID: 1, Data: [][]byte{pattern(1 << 20)}, Protocol: Rendezvous})
	if n := next(t, came, "message"); n != 1<<20 {
		t.Errorf("%d bytes", n)
	}
	tidy(t, next(t, sent, "end of the send")) // the sender's memory is free again
}

func fetchedLater(t *testing.T) {
	c := open(t)
	a, b := worker(t, c), worker(t, c)
	const size = 3 << 20
	from, to := mapped(t, size), mapped(t, size)
	copy(from, pattern(size))
	source, destination := mapIn(t, c, from), mapIn(t, c, to)
	arrived, fetch, received := make(chan Message, 1), make(chan bool), make(chan error, 1)
	handle(t, b, 1, func(m *Message) {
		arrived <- *m
		<-fetch
		if err := m.Receive([][]byte{to}, destination, func(n int, err error) {
			if n != size {
				err = errors.Join(err, fmt.Errorf("%d bytes", n))
			}
			received <- err
		}); err != nil {
			received <- err
		}
	})
	client, _ := joined(t, a, b)
	sent := send(t, client.Endpoint, &Outgoing{ID: 1, Header: []byte("h"), Data: [][]byte{from}, Memory: source, Protocol: Rendezvous})
	if m := next(t, arrived, "message"); !m.Rendezvous || m.Data != nil || m.Length != size || string(m.Header) != "h" {
		t.Errorf("%+v", &m)
	}
	select {
	case err := <-sent:
		t.Errorf("it was sent before anybody fetched it: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(fetch)
	tidy(t, next(t, received, "data"))
	tidy(t, next(t, sent, "end of the send"))
	if !bytes.Equal(from, to) {
		t.Error("the data differs")
	}
}

func mapIn(t testing.TB, c *Context, b []byte) *Memory {
	t.Helper()
	m, err := c.Map(at(b), len(b), Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tidy(t, m.Close()) })
	return m
}

func tooSmall(t *testing.T) {
	_, b, client, _ := two(t)
	refused := make(chan error, 1)
	handle(t, b, 1, func(m *Message) { refused <- m.Receive([][]byte{make([]byte, m.Length-1)}, nil, nil) })
	sent := send(t, client.Endpoint, &Outgoing{ID: 1, Data: [][]byte{pattern(1 << 20)}, Protocol: Rendezvous})
	wantError(t, next(t, refused, "message"), ErrBufferTooSmall)
	tidy(t, next(t, sent, "end of the send"))
}

func bothCompletions(t *testing.T) {
	_, b, client, _ := two(t)
	got := collect(t, b, 1)
	inPlace, byCallback := 0, 0
	for _, m := range []*Outgoing{
		{ID: 1, Data: [][]byte{pattern(8)}, Protocol: Eager},
		{ID: 1, Data: [][]byte{pattern(1 << 20)}, Protocol: Rendezvous},
	} {
		for range 10 {
			done := send(t, client.Endpoint, m)
			if len(done) > 0 {
				inPlace++
			} else {
				byCallback++
			}
			tidy(t, next(t, done, "end of the send"))
			next(t, got, "message")
		}
	}
	if inPlace == 0 || byCallback == 0 {
		t.Errorf("%d sends ended in place, %d by a callback", inPlace, byCallback)
	}
}
