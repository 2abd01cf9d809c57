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
	maxAtWork      = 1                // answers of each class that are made at a time; the others wait
	maxLookups     = 4                // requests at a time that look up names
	maxWait        = 2 * time.Second  // for their turn; then the answer is 503
	maxAnswer      = 10 * time.Second // for a client to take its answer
)

// connections are those that are open. For one beyond the limit, that which has been silent for the longest time is closed.
type connections struct {
	mu     sync.Mutex
	open   int
	silent map[net.Conn]time.Time // those that ask for nothing, since when
	beyond map[net.Conn]bool      // those beyond the limit, for which none was silent: they may ask for health
}

func newConnections() *connections {
	return &connections{silent: map[net.Conn]time.Time{}, beyond: map[net.Conn]bool{}}
}

// isReserved reports whether a connection is beyond the limit.
func (c *connections) isReserved(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.beyond[conn]
}

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
			if gone == conn && len(c.beyond) < maxReserved {
				c.beyond[conn] = true
				return
			}
			delete(c.silent, gone)
			go gone.Close() // TLS says goodbye first
		}
	case http.StateIdle:
		c.silent[conn] = time.Now()
	case http.StateClosed, http.StateHijacked:
		delete(c.beyond, conn)
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

// buffered makes the answers of next in memory: a client that reads slowly keeps nobody waiting. It loses its connection when it has
// not taken its answer within the given time.
func buffered(next http.Handler, within time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := answerBuffer{header: w.Header(), status: http.StatusOK}
		next.ServeHTTP(&a, r)
		a.send(w, within)
	})
}

// A class makes a bounded number of the answers to its requests at a time, and has the other requests wait.
type class struct {
	mux   *http.ServeMux
	turns chan struct{}
}

func newClass(mux *http.ServeMux, atWork int) class { return class{mux, make(chan struct{}, atWork)} }

// Handle registers the handler for a pattern of the class.
func (c class) Handle(pattern string, h http.Handler) { c.mux.Handle(pattern, c.bounded(h, maxAnswer)) }

// bounded has next wait for its turn, and then be taken as buffered does.
func (c class) bounded(next http.Handler, within time.Duration) http.Handler {
	answers := buffered(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { <-c.turns }() // ends: it has put a value there
		next.ServeHTTP(w, r)
	}), within)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		timer := time.NewTimer(maxWait)
		defer timer.Stop()
		select {
		case c.turns <- struct{}{}:
		case <-timer.C:
			http.Error(w, "too many requests are waiting: ask again later", http.StatusServiceUnavailable)
			return
		case <-r.Context().Done():
			return
		}
		answers.ServeHTTP(w, r)
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
			defer func() { <-p }() // ends: it has put a value there
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
