// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/share"
)

// TestThousandClients sends 1,000 clients to every interface of a serve process. They take something and leave, every
// other one before it is answered. Afterwards goroutines, descriptors and memory are as before. TestConnects does this
// for UCX.
func TestThousandClients(t *testing.T) {
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
	s := startLoaded(t)
	for _, c := range comers {
		t.Run(c.surface, func(t *testing.T) {
			comeAndGo(t, s, 30, c.beside, c.come) // creates what is made once and kept
			before := s.holds(t)
			began := time.Now()
			comeAndGo(t, s, 1000, c.beside, c.come)
			took := time.Since(began)
			var after holdings
			for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
				if after = s.holds(t); after.goroutines <= before.goroutines+5 && after.descriptors <= before.descriptors+5 {
					break
				}
			}
			t.Logf("%v: %+v before, %+v after", took, before, after)
			if after.goroutines > before.goroutines+5 || after.descriptors > before.descriptors+5 || after.memory > before.memory+64<<10 {
				t.Errorf("%+v before, %+v after", before, after)
			}
		})
	}
}

// holdings are the resources of a serve process.
type holdings struct {
	goroutines  float64
	descriptors int
	memory      float64 // KiB
}

var goroutines = regexp.MustCompile(`(?m)^go_goroutines (\S+)$`)

// holds returns what a serve process holds, without the connection that it uses to ask.
func (s loaded) holds(t *testing.T) holdings {
	t.Helper()
	http.DefaultClient.CloseIdleConnections()
	_, text := fetch(t, "http://"+s.web+"/metrics")
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.Process.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return holdings{programtest.Found(t, goroutines, text), len(open), programtest.Resident(t, s.Process.Process.Pid)}
}

// comeAndGo runs count clients, a number of them concurrently.
func comeAndGo(t *testing.T, s loaded, count, beside int, come func(ctx context.Context, s loaded, i int) error) {
	t.Helper()
	numbers := make(chan int, count)
	for i := range count {
		numbers <- i
	}
	close(numbers)
	var all sync.WaitGroup
	for range beside {
		all.Go(func() {
			for i := range numbers { // ends: numbers is closed
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if err := come(ctx, s, i); err != nil {
					t.Errorf("client %d: %v", i, err)
				}
				cancel()
			}
		})
	}
	all.Wait()
}

// polite reports whether a client waits for its answer.
func polite(i int) bool { return i%2 == 0 }

// comers are the clients of each interface.
var comers = []struct {
	surface string
	beside  int // concurrent clients
	come    func(ctx context.Context, s loaded, i int) error
}{
	{"page", 4, func(ctx context.Context, s loaded, i int) error {
		c, err := net.Dial("tcp", s.web)
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err == nil && polite(i) {
			_, err = c.Read(make([]byte, 1<<10))
		}
		return err
	}},
	{"RTSP over TCP", 4, func(ctx context.Context, s loaded, i int) error {
		return comeByRTSP(s, "RTP/AVP/TCP;unicast;interleaved=0-1", i)
	}},
	{"RTSP over UDP", 4, func(ctx context.Context, s loaded, i int) error {
		port := 40000 + 2*i // the previous client may still be leaving
		return comeByRTSP(s, fmt.Sprintf("RTP/AVP;unicast;client_port=%d-%d", port, port+1), i)
	}},
	{"WHEP", 16, func(ctx context.Context, s loaded, i int) error {
		peer, err := watchWHEP(ctx, "http://"+s.web+"/live/whep", func() {})
		if err != nil {
			return err
		}
		return peer.Close() // ICE has no message for the end; DTLS has
	}},
	{"shared frames", 1, func(ctx context.Context, s loaded, i int) error {
		if !polite(i) {
			c, err := net.Dial("unixpacket", s.socket)
			if err != nil {
				return err
			}
			return c.Close()
		}
		for {
			c, err := share.Dial(ctx, share.ClientConfig{Socket: s.socket})
			if err == nil {
				return c.Close()
			}
			if ctx.Err() != nil {
				return err
			}
			time.Sleep(time.Millisecond) // the previous client has just left
		}
	}},
	{"results", 4, func(ctx context.Context, s loaded, i int) error {
		c, err := net.Dial("tcp", s.lines)
		if err != nil {
			return err
		}
		if !polite(i) {
			_, err = io.WriteString(c, "hello")
		}
		_ = c.Close()
		return err
	}},
}

func comeByRTSP(s loaded, transport string, i int) error {
	c, in, err := playRTSP("rtsp://"+s.rtsp+"/raw", transport)
	if err != nil {
		return err
	}
	defer c.Close()
	if polite(i) {
		if _, err = io.WriteString(c, "OPTIONS * RTSP/1.0\r\nCSeq: 9\r\n\r\n"); err == nil {
			_, err = in.ReadByte()
		}
	}
	return err
}
