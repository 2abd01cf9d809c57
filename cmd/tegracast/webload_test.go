// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/cmd/tegracast/web"
)

// TestWebLoad runs 200 clients of the stream of the state, of moving and single pictures and of the page, of which a third
// read a byte every 100 ms and a third nothing. The raw stream must lose nothing, and what the clients cost is printed.
func TestWebLoad(t *testing.T) {
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
	programtest.Quiet(t, webLoad)
}

const webClients = 200

func webLoad(t *testing.T) error {
	s := startLoaded(t)
	alone, err := s.probed(t)
	before := s.losses(t)
	if err != nil || before > 0 {
		return errors.Join(fmt.Errorf("the machine is too slow: without clients %d frames were lost", before), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	var answers, refused [4]atomic.Int64
	paths := [4]string{"/api/v1/stream?pictures=raw", "/raw.mjpeg", "/raw.jpg", "/"}
	for i := range webClients {
		kind := i % len(paths)
		clients.Go(func() { webClient(ctx, "http://"+s.web+paths[kind], i/len(paths)%3, &answers[kind], &refused[kind]) })
	}
	for began := time.Now(); answers[0].Load()+answers[1].Load() < 16; time.Sleep(100 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("after a minute fewer than 16 clients follow")
		}
	}
	loaded, err := s.probed(t)
	cancel()
	clients.Wait() // ends: their context has ended
	if lost := s.losses(t) - before; lost > 0 {
		err = errors.Join(err, fmt.Errorf("%d frames were lost", lost))
	}
	for i, path := range paths {
		t.Logf("%s: %d answers, %d refused or cut off", path, answers[i].Load(), refused[i].Load())
		if answers[i].Load() == 0 {
			t.Errorf("nobody gets %s", path)
		}
	}
	t.Logf("CPU time of serve: %.3f s a second with 0 clients, %.3f with %d", alone, loaded, webClients)
	return err
}

// probed receives the raw stream for a while, and returns the CPU time of serve in seconds per second. Lost packets are an
// error.
func (s *loaded) probed(t *testing.T) (cpu float64, err error) {
	t.Helper()
	taken, began := s.ticks(t), time.Now()
	p := programtest.StartProgram(t, "probe", s.sdp, "--duration", loadFor.String(), "--json")
	p.Wait(t, loadFor+time.Minute)
	cpu = (s.ticks(t) - taken) / time.Since(began).Seconds()
	v := p.Verdict(t)
	if v.Mismatched > 0 || v.Matched == 0 {
		t.Errorf("%d checksums are right, %d wrong", v.Matched, v.Mismatched)
	}
	if v.Lost > 0 {
		err = fmt.Errorf("%d packets of the raw stream were lost", v.Lost)
	}
	return cpu, err
}

// losses returns the frames that were lost by the camera and by the raw stream.
func (s *loaded) losses(t *testing.T) (sum uint64) {
	t.Helper()
	var st web.Status
	if _, text := fetch(t, "http://"+s.web+"/api/v1/status"); json.Unmarshal([]byte(text), &st) != nil || len(st.Parts) == 0 {
		t.Fatal(text)
	}
	for _, p := range st.Parts {
		if p.Name == "camera" || p.Name == "raw" {
			sum += p.Lost
		}
	}
	return sum
}

// ticks returns the CPU time that serve has taken, in seconds (proc_pid_stat(5)).
func (s *loaded) ticks(t *testing.T) (sum float64) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.Process.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	for _, field := range fields[11:13] {
		n, err := strconv.ParseFloat(field, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n / 100
	}
	return sum
}

// webClient asks for a URL again and again. It reads the answer at once, a byte every 100 ms, or not at all.
func webClient(ctx context.Context, at string, how int, answers, refused *atomic.Int64) {
	client := http.Client{Transport: programtest.WithToken(&http.Transport{DisableKeepAlives: true, DisableCompression: true, ReadBufferSize: 1 << 10})}
	for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		stay, stop := context.WithTimeout(ctx, 10*time.Second)
		status, err := webAnswer(stay, &client, at, how)
		switch {
		case status == http.StatusOK:
			answers.Add(1)
		case status != 0 || err != nil && ctx.Err() == nil:
			refused.Add(1)
		}
		stop()
	}
}

func webAnswer(ctx context.Context, client *http.Client, at string, how int) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return 0, err
	}
	a, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer a.Body.Close()
	switch how {
	case 0:
		_, err = io.Copy(io.Discard, a.Body)
	case 1:
		for b := make([]byte, 1); err == nil && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			_, err = a.Body.Read(b)
		}
	default:
		<-ctx.Done() // ends: the client gives up
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return a.StatusCode, err
}
