// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// silentNames starts a server whose Send waits for a name server that never answers. began receives a value for each
// request.
func silentNames(t *testing.T) (base string, began <-chan struct{}) {
	t.Helper()
	begins := make(chan struct{}, 100)
	send := func(ctx context.Context, _, _ string) ([]byte, error) {
		begins <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return startServer(t, Config{
		listen: "127.0.0.1:0", Stats: stats, Health: (&state{ready: true}).health, Outputs: func() []Output { return nil }, Send: send,
	}), begins
}

// TestHealthDoesNotWaitForLookups checks that requests that resolve names delay only one another.
func TestHealthDoesNotWaitForLookups(t *testing.T) {
	base, began := silentNames(t)
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	for i := range maxLookups + 2 {
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, fmt.Sprintf("%s/api/v1/outputs/raw/destinations/viewer%d:5004", base, i), nil)
		if err != nil {
			t.Fatal(err)
		}
		asking.Go(func() {
			if answer, err := holder.Do(r); err == nil {
				answer.Body.Close()
			}
		})
	}
	for range maxLookups {
		<-began
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/api/v1/status"} {
		if status, body := get(t, base+path); status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

// TestHealthWithAllConnectionsAtWork checks that connections beyond the limit get answers for health and nothing else.
func TestHealthWithAllConnectionsAtWork(t *testing.T) {
	base, _ := silentNames(t)
	request := "PUT /api/v1/outputs/raw/destinations/viewer:5004 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + testToken + "\r\n\r\n"
	for range maxConnections { // each is busy or waits for its turn
		conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte(request)); err != nil {
			t.Fatal(err)
		}
	}
	if _, answered := asks(t, base, "/healthz", 1); !answered {
		t.Error("health was not answered")
	}
}

// TestHealthWithoutDescriptors checks that health is answered, repeatedly, when the process can open no more files.
func TestHealthWithoutDescriptors(t *testing.T) {
	base, _ := silentNames(t)
	var clients []int
	for range 3 { // their descriptors are opened in this process before
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, fd)
	}
	exhaust(t)
	address := net.TCPAddr{}
	if _, err := fmt.Sscanf(strings.TrimPrefix(base, "http://127.0.0.1:"), "%d", &address.Port); err != nil {
		t.Fatal(err)
	}
	for i, fd := range clients {
		_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20})
		if err := unix.Connect(fd, &unix.SockaddrInet4{Port: address.Port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Write(fd, []byte("GET /healthz HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+testToken+"\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(descriptor(fd)), nil)
		if err != nil {
			t.Fatalf("answer %d: %v", i+1, err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK || !answer.Close {
			t.Errorf("answer %d: %s, closes %t", i+1, answer.Status, answer.Close)
		}
	}
	for _, fd := range clients {
		unix.Close(fd)
	}
}

// A descriptor is read without package net, which would need more descriptors.
type descriptor int

// Read implements io.Reader.
func (d descriptor) Read(b []byte) (int, error) {
	n, err := unix.Read(int(d), b)
	return max(0, n), err
}

// exhaust uses up the descriptors of the process until the test ends.
func exhaust(t *testing.T) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 128, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	var taken []*os.File
	t.Cleanup(func() {
		for _, f := range taken {
			f.Close()
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	})
	for until := time.Now().Add(time.Minute); ; {
		f, err := os.Open(os.DevNull)
		if errors.Is(err, unix.EMFILE) {
			return
		}
		if err != nil || time.Now().After(until) {
			t.Fatal(err)
		}
		taken = append(taken, f)
	}
}

// A scripted listener returns what its functions return, in turn.
type scripted struct {
	net.Listener
	turns []func() (net.Conn, error)
}

// Accept implements net.Listener.
func (s *scripted) Accept() (net.Conn, error) {
	f := s.turns[0]
	s.turns = s.turns[1:]
	return f()
}

// TestSpareDescriptorComesBack checks that the reserve recovers after another part of the process has taken its
// descriptor.
func TestSpareDescriptorComesBack(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	limit := func(n uint64) {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
	}
	defer limit(before.Cur)
	none := func() (net.Conn, error) { return nil, unix.EMFILE }
	s := newSpareListener(&scripted{turns: []func() (net.Conn, error){
		none,
		func() (net.Conn, error) { limit(0); return nil, unix.EMFILE }, // its descriptor was taken
		none,
		func() (net.Conn, error) { a, b := net.Pipe(); b.Close(); return a, nil },
	}})
	if _, err := s.Accept(); !errors.Is(err, unix.EMFILE) {
		t.Fatal(err)
	}
	limit(before.Cur)
	conn, err := s.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if !isSpare(conn) {
		t.Errorf("%T has a descriptor of its own", conn)
	}
	conn.Close()
	if s.file == nil {
		t.Error("there is no spare descriptor after the connection")
	}
	s.mu.Lock()
	s.file.Close()
	s.mu.Unlock()
}
