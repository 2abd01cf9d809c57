// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// asks opens a connection, sends n requests at once and reads one answer; false when it was closed without one.
func asks(t *testing.T, base, path string, n int) (conn net.Conn, answered bool) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, strings.Repeat("GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n", n)); err != nil {
		return conn, false
	}
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return conn, false
	}
	r.Body.Close()
	return conn, r.StatusCode == http.StatusOK
}

// TestOnlySoManyConnectionsAreServed: for a further one, that which has been silent for the longest time is closed, and one that has never
// said anything, too.
func TestOnlySoManyConnectionsAreServed(t *testing.T) {
	base := serve(t, &state{}, false)
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
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) { // one is closed while the next one is served
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

// again asks once more on a connection.
func again(t *testing.T, c net.Conn) error {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return err
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	return r.Body.Close()
}

// TestAnswersAreMadeOneByOne: many clients ask for the metrics at once, and the books are read by one of them at a time.
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
	server, err := New(Config{Listen: "127.0.0.1:0", Stats: count, Health: (&state{}).health, Logger: slog.New(slog.DiscardHandler)})
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
	if most.Load() > maxAtWork || all.Load() < maxConnections {
		t.Errorf("%d answers, %d at a time: want %d at most", all.Load(), most.Load(), maxAtWork)
	}
}

// TestWhoDoesNotReadKeepsNobodyWaiting: a client asks and does not read; others are answered meanwhile, and it loses its connection.
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
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Fatal("the connection of a client that does not read stays open")
	}
}
