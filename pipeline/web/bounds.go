// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Clients must not take from the frames what these need: time of the CPU, memory and descriptors.
const (
	maxConnections = 32               // for a further one another is closed
	maxAtWork      = 1                // answers that are made at a time; the others wait
	maxWait        = 2 * time.Second  // for their turn; then the answer is 503
	maxAnswer      = 10 * time.Second // for a client to take its answer
)

// connections are those that are open. For one beyond the limit, that which has been silent for the longest time is closed.
type connections struct {
	mu     sync.Mutex
	open   int
	silent map[net.Conn]time.Time // those that ask for nothing, since when
}

func newConnections() *connections { return &connections{silent: map[net.Conn]time.Time{}} }

// watch is an http.Server's ConnState.
func (c *connections) watch(conn net.Conn, s http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.silent, conn)
	switch s {
	case http.StateNew:
		c.silent[conn] = time.Now()
		if c.open++; c.open > maxConnections {
			gone := c.least(conn)
			delete(c.silent, gone)
			go gone.Close() // TLS says goodbye first
		}
	case http.StateIdle:
		c.silent[conn] = time.Now()
	case http.StateClosed, http.StateHijacked:
		c.open--
	}
}

// least is the connection that is missed the least: the one that has been silent for the longest time, or conn, if all others are at
// work.
func (c *connections) least(conn net.Conn) net.Conn {
	since := time.Now()
	for x, t := range c.silent {
		if t.Before(since) {
			conn, since = x, t
		}
	}
	return conn
}

// bounded makes the answers of next one after the other, in memory: a client that reads slowly keeps nobody waiting. It loses
// its connection when it has not taken its answer within the given time.
func bounded(next http.Handler, within time.Duration) http.Handler {
	turns := make(chan struct{}, maxAtWork)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		timer := time.NewTimer(maxWait)
		defer timer.Stop()
		select {
		case turns <- struct{}{}:
		case <-timer.C:
			http.Error(w, "too many requests are waiting: ask again later", http.StatusServiceUnavailable)
			return
		case <-r.Context().Done():
			return
		}
		a := answerBuffer{header: w.Header(), status: http.StatusOK}
		func() {
			defer func() { <-turns }()
			next.ServeHTTP(&a, r)
		}()
		a.send(w, within)
	})
}

// atMost has next answer so many requests at a time, and refuses further ones. doing is what those clients do.
func atMost(n int, doing string, next http.Handler) http.Handler {
	return placesFor(n).atMost(doing, next)
}

// places are for requests that share a limit.
type places chan struct{}

func placesFor(n int) places { return make(places, n) }

func (p places) atMost(doing string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case p <- struct{}{}:
			defer func() { <-p }()
			next.ServeHTTP(w, r)
		default:
			http.Error(w, fmt.Sprintf("%d clients %s already: ask again later", cap(p), doing), http.StatusServiceUnavailable)
		}
	})
}

// answerBuffer is an answer before it is sent.
type answerBuffer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// send gives the client that long to take the answer, and a profile that it asks for next on the same connection longer again.
func (a *answerBuffer) send(w http.ResponseWriter, within time.Duration) {
	conn := http.NewResponseController(w)
	_ = conn.SetWriteDeadline(time.Now().Add(within)) // every connection of a server has one
	a.header.Set("Content-Length", strconv.Itoa(a.body.Len()))
	w.WriteHeader(a.status)
	if _, err := w.Write(a.body.Bytes()); err == nil && conn.Flush() == nil {
		_ = conn.SetWriteDeadline(time.Time{})
	}
}

// Header implements http.ResponseWriter.
func (a *answerBuffer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answerBuffer) WriteHeader(status int) { a.status = status }

// Write implements http.ResponseWriter.
func (a *answerBuffer) Write(b []byte) (int, error) { return a.body.Write(b) }
