// SPDX-License-Identifier: Apache-2.0

package webrtc

import (
	"log/slog"
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline/flood"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// limits are the limits of sessions.
type limits struct {
	sessions     int           // maximum number at the same time
	connect      time.Duration // time limit for a session to be connected
	disconnected time.Duration // silence of the peer after which the connection counts as interrupted
	failed       time.Duration // further silence after which the session ends
}

var usual = limits{sessions: 64, connect: 15 * time.Second, disconnected: 5 * time.Second, failed: 10 * time.Second}

// A Server offers streams to viewers. As an http.Handler it begins and ends their sessions.
type Server struct {
	log    *slog.Logger
	visits *slog.Logger // logger for messages about viewers
	limits limits

	mu       sync.Mutex
	closed   bool
	streams  map[string]*stream
	sessions map[string]*session // by the id in their URL
	open     int                 // number of sessions, including those about to begin
	running  sync.WaitGroup      // counts sessions
}

// New returns a server without streams. It opens no sockets before the first session.
func New(log *slog.Logger) *Server {
	return &Server{log: log, visits: flood.Logger(log), limits: usual, streams: map[string]*stream{}, sessions: map[string]*session{}}
}

// Add makes a stream available to viewers under a name. The sink must send H.264.
func (s *Server) Add(name string, sink *send.Sink) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[name] = &stream{name: name, sink: sink, log: s.visits}
}

// Remove removes a stream, ends its sessions and waits until they have ended. It does nothing if there is no such
// stream.
func (s *Server) Remove(name string) {
	s.mu.Lock()
	gone := s.streams[name]
	delete(s.streams, name)
	s.mu.Unlock()
	if gone != nil {
		for _, v := range gone.all() {
			v.end(errOutputEnded)
			<-v.over // ends: the session's end is bounded by its limits
		}
	}
}

// Close ends the sessions of all viewers, and waits until they have ended. No viewer can begin a new session.
// Publishers must be closed separately.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for _, v := range s.sessions {
		v.end(errServerEnded)
	}
	s.mu.Unlock()
	s.running.Wait()
}

// Viewers returns the connected sessions of a stream, those with servers to which it is published included, as
// destinations.
func (s *Server) Viewers(name string) (list []send.DestinationStats) {
	s.mu.Lock()
	st := s.streams[name]
	s.mu.Unlock()
	if st == nil {
		return nil
	}
	for _, v := range st.all() {
		if v.connected.Load() {
			list = append(list, v.stats())
		}
	}
	return list
}

// reserve reserves a place for a session of a stream. The caller must then call startSession, or giveBack if there will
// be no session.
func (s *Server) reserve(name string) (*stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.streams[name]
	switch {
	case st == nil:
		return nil, errNoStream
	case s.closed || s.open >= s.limits.sessions:
		return nil, errFull
	}
	s.open++
	return st, nil
}

func (s *Server) giveBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
}

// startSession starts a session that has a place. It returns false, and the place remains reserved, if the stream or
// the server has ended meanwhile.
func (s *Server) startSession(v *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.streams[v.stream.name] != v.stream {
		return false
	}
	s.sessions[v.id] = v
	v.stream.join(v)
	s.running.Go(func() {
		v.run(s.limits.connect)
		s.mu.Lock()
		delete(s.sessions, v.id)
		s.open--
		s.mu.Unlock()
		close(v.over)
	})
	return true
}

// find returns the session id of the stream name, or nil if there is none.
func (s *Server) find(name, id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.sessions[id]; v != nil && v.stream.name == name {
		return v
	}
	return nil
}
