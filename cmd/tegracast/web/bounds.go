// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline/flood"
)

// Limits that keep clients from taking CPU time, memory and descriptors from the frames.
const (
	maxConnections = 32               // beyond this, one is closed for each new one (connections)
	maxOfAddress   = 24               // connections per address, or per IPv6 network of 64 bits
	maxAtWork      = 1                // concurrent answers with metrics, and of the page's class; other requests wait
	maxLookups     = 4                // concurrent requests that resolve names
	maxWait        = 2 * time.Second  // maximum wait for a turn; after that the answer is 503
	maxAnswer      = 10 * time.Second // maximum time for a client to receive its answer
)

// connections tracks the open connections. When a limit is exceeded, the connection that has been idle for the longest
// time is closed. If none is idle, the new one is closed, or, up to maxReserved beyond maxConnections, is admitted for
// health only.
type connections struct {
	access *Access // knows the proxies, which have many clients; nil: all clients are on this machine
	mu     sync.Mutex
	open   map[net.Conn]netip.Addr // addresses as site returns them
	silent map[net.Conn]time.Time  // idle connections, and since when
	beyond map[net.Conn]bool       // connections beyond the limit, admitted when none was idle: only for health
}

func newConnections(a *Access) *connections {
	return &connections{access: a, open: map[net.Conn]netip.Addr{}, silent: map[net.Conn]time.Time{}, beyond: map[net.Conn]bool{}}
}

// isReserved reports whether a connection was admitted beyond the limit, for health only.
func (c *connections) isReserved(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.beyond[conn]
}

// watch implements http.Server's ConnState.
func (c *connections) watch(conn net.Conn, s http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.silent, conn)
	switch s {
	case http.StateNew:
		c.silent[conn] = time.Now()
		if gone := c.add(conn); gone != nil {
			delete(c.silent, gone)
			go gone.Close() // asynchronously, because TLS sends an alert first
		}
	case http.StateIdle:
		c.silent[conn] = time.Now()
	case http.StateClosed, http.StateHijacked:
		delete(c.beyond, conn)
		delete(c.open, conn)
	}
}

// add adds a connection and returns the one to close for it, or nil if there is room or if it is admitted beyond the
// limit.
func (c *connections) add(conn net.Conn) (gone net.Conn) {
	from := c.site(conn)
	c.open[conn] = from
	if from.IsValid() && c.of(from) > maxOfAddress {
		return c.least(conn, from)
	}
	if len(c.open) <= maxConnections {
		return nil
	}
	gone = c.least(conn, netip.Addr{})
	if gone == conn && len(c.beyond) < maxReserved {
		c.beyond[conn] = true
		return nil
	}
	return gone
}

// site returns the address, or the IPv6 network of 64 bits, for which a connection is counted. It is zero for this
// machine and for proxies, which have many clients.
func (c *connections) site(conn net.Conn) netip.Addr {
	if a := addressOf(conn); c.access != nil && !a.IsLoopback() && !c.access.trusts(a) {
		return flood.Network(a)
	}
	return netip.Addr{}
}

func (c *connections) of(from netip.Addr) (n int) {
	for _, a := range c.open {
		if a == from {
			n++
		}
	}
	return n
}

// least returns the connection to close, of an address or, with the zero Addr, of all: the one that has been idle for the
// longest time, or conn if no other is idle.
func (c *connections) least(conn net.Conn, from netip.Addr) net.Conn {
	since := time.Now()
	for x, t := range c.silent {
		if t.Before(since) && (!from.IsValid() || c.open[x] == from) {
			conn, since = x, t
		}
	}
	return conn
}

// buffered returns a handler that has next write its answer to memory and then sends it, so that a slow reader does not
// delay others. A client that has not received its answer within the given time loses its connection.
func buffered(next http.Handler, within time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := answerBuffer{header: w.Header(), status: http.StatusOK}
		next.ServeHTTP(&a, r)
		a.send(w, within)
	})
}

// A class makes a bounded number of answers at a time. Other requests of the class wait.
type class struct {
	mux   *http.ServeMux
	turns chan struct{}
}

func newClass(mux *http.ServeMux, atWork int) class { return class{mux, make(chan struct{}, atWork)} }

// Handle registers a handler of the class for a pattern.
func (c class) Handle(pattern string, h http.Handler) { c.mux.Handle(pattern, c.bounded(h, maxAnswer)) }

// bounded makes each request to next wait for its turn, and refuses it after maxWait. The function buffered sends the
// answer, with the time limit within.
func (c class) bounded(next http.Handler, within time.Duration) http.Handler {
	answers := buffered(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { <-c.turns }() // ends: this request has sent a value
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

// atMost limits the number of concurrent requests to next, and refuses more. doing describes the activity in the refusal.
func atMost(n int, doing string, next http.Handler) http.Handler {
	return placesFor(n).atMost(doing, next)
}

// places is a limit that several handlers can share.
type places chan struct{}

func placesFor(n int) places { return make(places, n) }

func (p places) atMost(doing string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case p <- struct{}{}:
			defer func() { <-p }() // ends: this request has sent a value
			next.ServeHTTP(w, r)
		default:
			http.Error(w, fmt.Sprintf("%d clients %s already: ask again later", cap(p), doing), http.StatusServiceUnavailable)
		}
	})
}

// answerBuffer holds an answer until it is sent.
type answerBuffer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// send sends the answer under a write deadline, and clears the deadline when the answer was sent.
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
