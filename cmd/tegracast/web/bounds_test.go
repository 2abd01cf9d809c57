// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// asks opens a connection, sends n requests at once and reads one answer. It returns false if the connection was closed
// without one.
func asks(t *testing.T, base, path string, n int) (conn net.Conn, answered bool) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, strings.Repeat("GET "+path+" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+testToken+"\r\n\r\n", n)); err != nil {
		return conn, false
	}
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return conn, false
	}
	r.Body.Close()
	return conn, r.StatusCode == http.StatusOK
}

// TestOnlySoManyConnectionsAreServed checks that a connection beyond the limit closes the one that has been idle for the
// longest time, even if that one has never sent a request.
func TestOnlySoManyConnectionsAreServed(t *testing.T) {
	base := serveState(t, &state{}, false)
	for range maxConnections {
		conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	var open []net.Conn
	for i := range 3 * maxConnections {
		conn, answered := asks(t, base, "/healthz", 1)
		if open = append(open, conn); !answered {
			t.Fatalf("connection %d: no answer", i+1)
		}
	}
	alive := 0
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) { // one is closed while the next is served
		alive = 0
		for i, c := range open {
			switch err := again(t, c); {
			case err == nil:
				alive++
			case errors.Is(err, os.ErrDeadlineExceeded) || i == len(open)-1:
				t.Errorf("connection %d of %d: %v", i+1, len(open), err)
			}
		}
		if alive <= maxConnections || time.Now().After(until) {
			break
		}
	}
	if alive != maxConnections {
		t.Errorf("%d connections are open, not %d", alive, maxConnections)
	}
}

// again sends one more request on a connection.
func again(t *testing.T, c net.Conn) error {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+testToken+"\r\n\r\n"); err != nil {
		return err
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	return r.Body.Close()
}

// TestAnswersAreMadeOneByOne checks that the statistics are read for one client at a time when many request metrics at
// once.
func TestAnswersAreMadeOneByOne(t *testing.T) {
	var now, most, all atomic.Int32
	count := func() pipeline.Stats {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		all.Add(1)
		time.Sleep(time.Millisecond)
		return stats()
	}
	server, err := New(Config{listen: "127.0.0.1:0", Stats: count, Health: (&state{}).health, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	var wg sync.WaitGroup
	for range maxConnections {
		wg.Go(func() {
			if _, answered := asks(t, "http://"+server.Addr().String(), "/metrics", 10); !answered {
				t.Error("no answer")
			}
		})
	}
	wg.Wait()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	const atOnce = maxAtWork + 1 // one for the samples
	if most.Load() > atOnce || all.Load() < maxConnections {
		t.Errorf("%d answers, %d at a time: want %d at most", all.Load(), most.Load(), atOnce)
	}
}

// TestWhoDoesNotReadKeepsNobodyWaiting checks that a client that does not read its answer does not delay others and loses
// its connection.
func TestWhoDoesNotReadKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	large := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 64<<20)) })
	closed := make(chan struct{})
	server := httptest.NewUnstartedServer(newClass(nil, 1).bounded(large, time.Second))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed {
			close(closed)
		}
	}
	server.Start()
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+testToken+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Fatal("the connection of a client that does not read stays open")
	}
}

// from is a connection from a given address. Its Close closes the channel closed.
type from struct {
	net.Conn
	address string
	closed  chan struct{}
}

// RemoteAddr implements net.Conn.
func (f *from) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(f.address))
}

// Close implements net.Conn.
func (f *from) Close() error {
	close(f.closed)
	return nil
}

// TestOneAddressHasNotAllConnections checks that an address beyond its own limit loses the connections that have been
// idle for the longest time, while others keep theirs. Only the common limit applies to proxies and this machine, which
// have many clients.
func TestOneAddressHasNotAllConnections(t *testing.T) {
	c := newConnections(&Access{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("198.51.100.1/32")}})
	open := func(address string) *from {
		f := &from{address: address, closed: make(chan struct{})}
		c.watch(f, http.StateNew)
		return f
	}
	honest := open("192.0.2.1:1")
	first := open("[2001:db8::1]:1")
	for i := range maxOfAddress - 1 {
		open(fmt.Sprintf("[2001:db8::1:%x]:2", i)) // in the same network
	}
	select {
	case <-first.closed:
		t.Fatalf("with %d connections one is closed", maxOfAddress)
	default:
	}
	open("[2001:db8::ffff]:3")
	<-first.closed
	for address, counted := range map[string]bool{"127.0.0.1:1": false, "198.51.100.1:1": false, "203.0.113.1:1": true} {
		if valid := c.site(&from{address: address}).IsValid(); valid != counted {
			t.Errorf("%s is counted: %t", address, valid)
		}
	}
	select {
	case <-honest.closed:
		t.Error("the connection of another address is closed")
	default:
	}
}
