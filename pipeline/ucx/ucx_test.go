// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"bytes"
	"net/netip"
	"testing"
	"time"
)

func TestSmoke(t *testing.T) {
	c, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(c.Release())
	a, err := c.NewWorker()
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.NewWorker()
	if err != nil {
		t.Fatal(err)
	}
	t.Log(a.MaxHeader())
	eps := make(chan *Endpoint, 1)
	l, err := b.Listen(netip.MustParseAddrPort("127.0.0.1:0"), func(r *ConnRequest) {
		t.Log(r.From())
		e, err := r.Accept(EndpointOptions{Failed: func(err error) { t.Log("server failed", err) }})
		if err != nil {
			t.Error(err)
		}
		eps <- e
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(l.Addr())
	got := make(chan []byte, 1)
	big := bytes.Repeat([]byte("abcdefgh"), 1<<17)
	buffer := make([]byte, 1<<20)
	b.Handle(7, func(m *Message) {
		if m.Rendezvous {
			if err := m.Receive([][]byte{buffer}, nil, func(n int, err error) {
				t.Log("received", n, err)
				got <- buffer[:n]
			}); err != nil {
				t.Error(err)
			}
			return
		}
		t.Log(string(m.Header), string(m.Data), m.Endpoint)
		got <- bytes.Clone(m.Data)
	})
	e, err := a.Dial(l.Addr(), EndpointOptions{Failed: func(err error) { t.Log("client failed", err) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Send(&Outgoing{ID: 7, Header: []byte("head"), Data: [][]byte{[]byte("hello "), []byte("you")}}, func(err error) { t.Log("sent", err) }); err != nil {
		t.Fatal(err)
	}
	select {
	case <-got:
	case <-time.After(5 * time.Second):
		t.Fatal("nothing came")
	}
	start := time.Now()
	for range 100 {
		if err := e.Send(&Outgoing{ID: 7, Header: []byte("head"), Data: [][]byte{big}, Protocol: Rendezvous}, func(err error) { t.Log("sent", err) }); err != nil {
			t.Fatal(err)
		}
		select {
		case d := <-got:
			if !bytes.Equal(d, big) {
				t.Error("differs")
			}
		case <-time.After(5 * time.Second):
			t.Fatal("nothing came")
		}
	}
	t.Log(time.Since(start) / 100)
	(<-eps).Abort()
	time.Sleep(100 * time.Millisecond)
	e.Abort()
	t.Log(a.Close(), b.Close(), c.Close())
}
