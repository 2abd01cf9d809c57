// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"
)

// honest checks that somebody still gets a connection to a listener, which hands its requests to requests.
func honest(t *testing.T, w *Worker, l *Listener, requests <-chan *ConnRequest) {
	t.Helper()
	client := dial(t, w, l.Addr())
	accept(t, next(t, requests, "connection request"), w)
	tidy(t, next(t, send(t, client.Endpoint, &Outgoing{ID: idEcho, Data: [][]byte{pattern(100)}}), "end of the send"))
}

// TestGarbage checks that data that are no message of the library do not reach it, and do not end the process.
func TestGarbage(t *testing.T) {
	w := worker(t, open(t))
	collect(t, w, idEcho)
	requests := make(chan *ConnRequest, 1)
	l := listen(t, w, loopback, func(r *ConnRequest) { requests <- r })
	head := func(length uint64, status byte, data int) []byte {
		return append(append(binary.LittleEndian.AppendUint64(nil, length), status), make([]byte, 7+data)...)
	}
	for name, data := range map[string][]byte{
		"ones": bytes.Repeat([]byte{0xff}, 4096), "zeros": make([]byte, 64), "too much": head(10, 0, 20), "too little": head(100, 0, 20),
		"status": append(head(0, 0xff, 0), 0), "HTTP": []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), "a byte": {0},
	} {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		time.Sleep(20 * time.Millisecond) // for the library's thread
		c.Close()
	}
	honest(t, w, l, requests)
}

// TestSilence checks that silent connections cost the library nothing. It would close descriptors of others.
func TestSilence(t *testing.T) {
	w := worker(t, open(t))
	collect(t, w, idEcho)
	requests := make(chan *ConnRequest, 1)
	l := listen(t, w, loopback, func(r *ConnRequest) { requests <- r })
	for range 1500 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	taken := -1 // the listener itself
	l.sockets(func(int) { taken++ })
	if taken > 0 {
		t.Errorf("the library has %d of them", taken)
	}
	honest(t, w, l, requests)
}

// TestAdmit checks that only admitted clients connect, to listeners and to the sockets behind them, until others are
// admitted.
func TestAdmit(t *testing.T) {
	w := worker(t, open(t))
	collect(t, w, idEcho)
	if len(w.ports) == 0 {
		t.Fatal("it is not known where the library listens")
	}
	requests := make(chan *ConnRequest, 1)
	listener := func() *Listener { return listen(t, w, loopback, func(r *ConnRequest) { requests <- r }) }
	old := listener()
	admit := func(networks ...string) {
		t.Helper()
		var list []netip.Prefix
		for _, n := range networks {
			list = append(list, netip.MustParsePrefix(n))
		}
		if err := w.Admit(list); err != nil {
			t.Fatal(err)
		}
	}
	reached := func(l *Listener) (n int) {
		places := []netip.AddrPort{l.Addr()}
		for at := range w.ports {
			places = append(places, at)
		}
		for _, at := range places {
			if c, err := net.DialTimeout("tcp", at.String(), 200*time.Millisecond); err == nil {
				c.Close()
				n++
			} else if !os.IsTimeout(err) {
				t.Errorf("%v: %v", at, err)
			}
		}
		return n
	}
	admit("192.0.2.128/25", "2001:db8::/32")
	if n := reached(old) + reached(listener()); n != 0 {
		t.Errorf("%d sockets are reached by a stranger", n)
	}
	admit()
	if n := reached(old); n != 0 {
		t.Errorf("%d sockets are reached when nobody may", n)
	}
	admit("192.0.2.128/25", "127.0.0.0/8", "0.0.0.0/0")
	if n := reached(old); n != 1+len(w.ports) {
		t.Errorf("%d sockets are reached, want all", n)
	}
	honest(t, w, old, requests)
}
