// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

const (
	maxEvents    = 256              // number of events kept
	maxListeners = 8                // clients that receive events
	heartbeat    = 15 * time.Second // interval of comments on a quiet connection, which detect a lost client
)

// Events holds the latest log records for /api/v1/events. As an io.Writer it takes one record per call, as a line of
// JSON, as slog.JSONHandler writes them.
type Events struct{ *tail[[]byte] }

// NewEvents returns an Events without events.
func NewEvents() *Events { return &Events{newTail[[]byte](maxEvents)} }

// Write implements io.Writer.
func (e *Events) Write(b []byte) (int, error) {
	e.add(bytes.TrimSpace(bytes.Clone(b)))
	return len(b), nil
}

// events returns a handler that answers with the events after the number in the parameter since, or without it sends
// events as they occur.
func (c *Config) events(ended <-chan struct{}) http.Handler {
	stream := c.streamEvents(ended)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		since := r.URL.Query().Get("since")
		if since == "" {
			stream.ServeHTTP(w, r)
			return
		}
		known, err := strconv.ParseUint(since, 10, 64)
		if err != nil {
			http.Error(w, "since: write the number of an event", http.StatusBadRequest)
			return
		}
		list, last, _ := c.Events.after(known)
		answer := EventList{Start: c.start, Last: last, Events: make([]json.RawMessage, len(list))}
		for i, event := range list {
			answer.Events[i] = event
		}
		writeJSON(w, http.StatusOK, answer)
	})
}

// An EventList lists the events after a given number.
type EventList struct {
	Start  int64             `json:"start"` // when the server began, in ms of Unix time; then the numbers begin again
	Last   uint64            `json:"last"`  // number of the latest event
	Events []json.RawMessage `json:"events"`
}

// streamEvents returns a handler that sends events as they occur (text/event-stream, HTML Living Standard §9.2),
// beginning after Last-Event-ID, START.RECORD, if it is one of this process, or with all events kept.
func (c *Config) streamEvents(ended <-chan struct{}) http.Handler {
	return atMost(maxListeners, "listen", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		beat := time.NewTicker(heartbeat)
		defer beat.Stop()
		var start int64
		var known uint64
		if _, _ = fmt.Sscanf(r.Header.Get("Last-Event-ID"), "%d.%d", &start, &known); start != c.start {
			known = 0
		}
		text := bytes.NewBufferString(": events\n\n") // starts the answer
		for {
			list, last, more := c.Events.after(known)
			for i, event := range list {
				fmt.Fprintf(text, "id: %d.%d\ndata: %s\n\n", c.start, last-uint64(len(list)-1-i), event)
			}
			known = last
			if !sendText(w, text) {
				return
			}
			select {
			case <-more:
			case <-beat.C:
				text.WriteString(":\n\n")
			case <-r.Context().Done():
				return
			case <-ended:
				return
			}
		}
	}))
}
