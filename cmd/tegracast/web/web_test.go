// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/tegracast/tegracast/pipeline"
)

// state is the health of a fake appliance.
type state struct {
	ready   bool
	stalled error
}

func (s *state) health() (bool, error) { return s.ready, s.stalled }

func stats() pipeline.Stats {
	times := func() pipeline.Distribution {
		var h pipeline.Histogram
		for _, d := range []time.Duration{0, time.Millisecond, 40 * time.Millisecond, time.Hour} {
			h.Observe(d)
		}
		return h.Distribution()
	}()
	return pipeline.Stats{
		Sources: []pipeline.SourceStats{{Name: "camera", Captured: 10, Lost: 2, Report: map[string]uint64{"crc": 1}}},
		Stages: []pipeline.StageStats{{
			Counts:    pipeline.Counts{Name: "isp", Offered: 10, Delivered: 9, Dropped: map[string]uint64{"stage": 1}},
			WorkTimes: times, Latencies: times,
		}},
		Outputs: []pipeline.OutputStats{
			{Name: "raw", Captured: 10, Delivered: 4, Dropped: map[string]uint64{"isp/stage": 1, "raw/queue": 3}, Waiting: 2, Latencies: times},
			{Name: "jpeg", Faults: 2, OutputStatus: pipeline.OutputStatus{State: pipeline.Retrying, Error: "gone"}},
		},
	}
}

func serveState(t *testing.T, s *state, profile bool) (base string) {
	t.Helper()
	return startServer(t, Config{listen: "127.0.0.1:0", profile: profile, Stats: stats, Health: s.health})
}

const testToken = "00112233445566778899aabbccddeeff"

// A bearer adds the token to requests without an Authorization header.
type bearer struct{}

// RoundTrip implements http.RoundTripper.
func (bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") == "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+testToken)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// holder is a client that has the token.
var holder = http.Client{Transport: bearer{}}

var discard = slog.New(slog.DiscardHandler)

func startServer(t *testing.T, c Config) (base string) {
	t.Helper()
	if c.Access.Token == "" && c.Access.Password == "" {
		c.Access.Token = testToken
	}
	c.Logger = cmp.Or(c.Logger, discard)
	server, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "http://" + server.Addr().String()
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	r, err := holder.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// TestMetrics checks that every number of the statistics is exported, and that Prometheus's linter, which promtool check
// metrics runs, accepts our metrics.
func TestMetrics(t *testing.T) {
	status, text := get(t, serveState(t, &state{ready: true}, false)+"/metrics")
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, text)
	}
	for _, want := range []string{
		`tegracast_ready 1`, `tegracast_stalled 0`,
		`tegracast_source_frames_total{source="camera"} 10`, `tegracast_source_lost_frames_total{source="camera"} 2`,
		`tegracast_source_events_total{event="crc",source="camera"} 1`,
		`tegracast_stage_dropped_frames_total{reason="stage",stage="isp"} 1`,
		`tegracast_stage_work_seconds_count{stage="isp"} 4`, `tegracast_stage_latency_seconds_count{stage="isp"} 4`,
		`tegracast_output_frames_total{output="raw"} 4`, `tegracast_output_waiting_frames{output="raw"} 2`,
		`tegracast_output_dropped_frames_total{output="raw",place="raw",reason="queue"} 3`,
		`tegracast_output_dropped_frames_total{output="raw",place="isp",reason="stage"} 1`,
		`tegracast_output_failed{output="jpeg"} 1`,
		`tegracast_output_latency_seconds_bucket{output="raw",le="0.000131072"} 1`,
		`tegracast_output_latency_seconds_bucket{output="raw",le="0.001048576"} 2`,
		`tegracast_output_latency_seconds_bucket{output="raw",le="8.589934592"} 3`,
		`tegracast_output_latency_seconds_bucket{output="raw",le="+Inf"} 4`,
		`tegracast_output_latency_seconds_count{output="raw"} 4`,
		`tegracast_output_latency_seconds_sum{output="raw"} 3600.041`,
		`go_goroutines`, `process_open_fds`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s", want)
		}
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "tegracast_") {
			t.Errorf("promlint: %s: %s", p.Metric, p.Text)
		}
	}
}

func TestHealth(t *testing.T) {
	s := &state{}
	base := serveState(t, s, false)
	for _, tt := range []struct {
		state         state
		health, ready int
		says          string
	}{
		{state{}, 200, 503, "ok"},
		{state{ready: true}, 200, 200, "ok"},
		{state{true, errors.New("output raw has not moved")}, 503, 200, "output raw has not moved"},
	} {
		*s = tt.state
		status, body := get(t, base+"/healthz")
		if ready, _ := get(t, base+"/readyz"); status != tt.health || ready != tt.ready || strings.TrimSpace(body) != tt.says {
			t.Errorf("%+v: health %d %q, ready %d", tt.state, status, body, ready)
		}
	}
	for _, path := range []string{"/x", "/debug/pprof/", "/metrics/x"} {
		if status, _ := get(t, base+path); status != http.StatusNotFound {
			t.Errorf("%s: status %d", path, status)
		}
	}
	if r, err := holder.Post(base+"/metrics", "text/plain", strings.NewReader("x")); err != nil || r.Body.Close() != nil || r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %v, %v", r, err)
	}
}

func TestProfile(t *testing.T) {
	if status, body := get(t, serveState(t, &state{}, true)+"/debug/pprof/"); status != http.StatusOK || !strings.Contains(body, "goroutine") {
		t.Errorf("status %d: %s", status, body)
	}
}

// TestAddressInUse checks that an address in use is refused.
func TestAddressInUse(t *testing.T) {
	base := serveState(t, &state{}, false)
	if s, err := New(Config{listen: strings.TrimPrefix(base, "http://"), Stats: stats, Health: (&state{}).health, Logger: slog.New(slog.DiscardHandler)}); err == nil {
		_ = s.Close()
		t.Error("two servers have one address")
	}
}
