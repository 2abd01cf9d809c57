// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// listen requests the events after the known number, and returns them line by line.
func listen(t *testing.T, base, known string) (status int, line func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	if known != "" {
		r.Header.Set("Last-Event-ID", known)
	}
	answer, err := holder.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	scanner := bufio.NewScanner(answer.Body)
	return answer.StatusCode, func() string {
		t.Helper()
		for scanner.Scan() {
			if s := scanner.Text(); s != "" && !strings.HasPrefix(s, ":") {
				return s
			}
		}
		t.Fatalf("no more events: %v", scanner.Err())
		return ""
	}
}

// TestEvents checks that events are sent with their numbers, the kept ones at once and others as they occur, and that a
// client that knows some gets the rest.
func TestEvents(t *testing.T) {
	events := NewEvents()
	log := slog.New(slog.NewJSONHandler(events, nil)).With("source", "camera")
	base := startServer(t, Config{listen: "127.0.0.1:0", Stats: stats, Health: (&state{}).health, Events: events})
	log.Warn("late\nand \"quoted\"", "frame", 1)
	var start string
	expect := func(line func() string, id int) {
		t.Helper()
		began, number, _ := strings.Cut(strings.TrimPrefix(line(), "id: "), ".")
		if start = began; number != strconv.Itoa(id) {
			t.Errorf("%q, not event %d", number, id)
		}
		var record struct {
			Msg, Source string
			Frame       int
		}
		data, ok := strings.CutPrefix(line(), "data: ")
		if err := json.Unmarshal([]byte(data), &record); !ok || err != nil || record.Source != "camera" || record.Frame != id || !strings.HasPrefix(record.Msg, "late") {
			t.Errorf("event %d: %q, %v", id, data, err)
		}
	}
	status, line := listen(t, base, "")
	if status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	expect(line, 1)
	log.Info("later", "frame", 2)
	expect(line, 2)
	for n := 3; n <= maxEvents+10; n++ {
		log.Info("late", "frame", n)
		expect(line, n)
	}
	for known, first := range map[string]int{"": 11, start + ".100": 101, start + ".999999": 11, "1" + start + ".100": 11, "x": 11} {
		_, line := listen(t, base, known)
		expect(line, first)
	}
}

// TestOnlySoManyListen checks that a listener beyond the limit is refused, and that a listener that leaves makes room.
func TestOnlySoManyListen(t *testing.T) {
	events := NewEvents()
	fmt.Fprintln(events, `{}`)
	base := startServer(t, Config{listen: "127.0.0.1:0", Stats: stats, Health: (&state{}).health, Events: events})
	ctx, cancel := context.WithCancel(t.Context())
	for i := range maxListeners + 1 {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/v1/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := holder.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if want := map[bool]int{true: http.StatusOK, false: http.StatusServiceUnavailable}[i < maxListeners]; answer.StatusCode != want {
			t.Fatalf("listener %d: status %d", i+1, answer.StatusCode)
		}
	}
	cancel()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if status, _ := listen(t, base, ""); status == http.StatusOK {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatal("there is no room again")
		}
	}
}
