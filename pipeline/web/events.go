// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	maxEvents    = 256              // that are kept
	maxListeners = 8                // of events
	heartbeat    = 15 * time.Second // after which a quiet connection gets a comment, so that one that is gone is noticed
)

// Events are what has happened: log records, the latest ones, for whoever asks for /api/v1/events. As an io.Writer it takes one record a
// call, as JSON in one line, as slog.JSONHandler writes them.
type Events struct {
	mu   sync.Mutex
	list [][]byte      // the latest ones
	last uint64        // how many there were
	more chan struct{} // closed by the next one
}

// NewEvents returns events of which there are none yet.
func NewEvents() *Events { return &Events{more: make(chan struct{})} }

// Write implements io.Writer.
func (e *Events) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.list) == maxEvents {
		e.list = slices.Delete(e.list, 0, 1)
	}
	e.list = append(e.list, bytes.TrimSpace(bytes.Clone(b)))
	e.last++
	close(e.more)
	e.more = make(chan struct{})
	return len(b), nil
}

// after returns the events behind number n that are still there, the number of the last one, and what the next one closes.
func (e *Events) after(n uint64) (list [][]byte, last uint64, more <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n > e.last { // of an earlier process
		n = 0
	}
	kept := min(e.last-n, uint64(len(e.list)))
	return slices.Clone(e.list[uint64(len(e.list))-kept:]), e.last, e.more
}

// tell sends events as they come (text/event-stream, HTML Living Standard §9.2), those behind Last-Event-ID first, or all that are kept.
func (c *Config) tell(ended <-chan struct{}) http.Handler {
	return atMost(maxListeners, "listen", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		beat := time.NewTicker(heartbeat)
		defer beat.Stop()
		known, _ := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 64) // 0: none
		text := bytes.NewBufferString(": events\n\n")                        // so that the answer begins
		for {
			list, last, more := c.Events.after(known)
			for i, event := range list {
				fmt.Fprintf(text, "id: %d\ndata: %s\n\n", last-uint64(len(list)-1-i), event)
			}
			known = last
			limit(w)
			_, err := w.Write(text.Bytes())
			if err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
			text.Reset()
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
