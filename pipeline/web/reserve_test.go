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

// silentNames starts a server whose Send waits for a name server that never answers. began gets a value for each request.
func silentNames(t *testing.T) (base string, began <-chan struct{}) {
	t.Helper()
	begins := make(chan struct{}, 100)
	send := func(ctx context.Context, _, _ string) ([]byte, error) {
		begins <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return run(t, Config{
		Listen: "127.0.0.1:0", Stats: stats, Health: (&state{ready: true}).health, Outputs: func() []Output { return nil }, Send: send,
	}), begins
}

// TestHealthDoesNotWaitForLookups: requests that look up names wait among themselves alone.
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
			if answer, err := http.DefaultClient.Do(r); err == nil {
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

// TestHealthWithAllConnectionsAtWork: beyond the limit there are connections that health is answered on, and nothing else.
func TestHealthWithAllConnectionsAtWork(t *testing.T) {
	base, _ := silentNames(t)
	request := "PUT /api/v1/outputs/raw/destinations/viewer:5004 HTTP/1.1\r\nHost: x\r\n\r\n"
	for range maxConnections { // each is at work, or waits for its turn
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

// TestHealthWithoutDescriptors: the process may open no more files, and health is answered, again and again.
func TestHealthWithoutDescriptors(t *testing.T) {
	base, _ := silentNames(t)
	var clients []int
	for range 3 { // of this process, too: they have their descriptors already
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
		if _, err := unix.Write(fd, []byte("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
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

// A descriptor is read without package net.
type descriptor int

// Read implements io.Reader.
func (d descriptor) Read(b []byte) (int, error) {
	n, err := unix.Read(int(d), b)
	return max(0, n), err
}

// exhaust leaves the process without descriptors until the test ends.
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
