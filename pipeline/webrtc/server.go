// SPDX-License-Identifier: Apache-2.0

package webrtc

import (
	"log/slog"
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// limits bound what sessions may take.
type limits struct {
	sessions     int           // at a time
	connect      time.Duration // for a session to be connected; then it ends
	disconnected time.Duration // without a sign of the viewer; then it is asked
	failed       time.Duration // for the viewer to answer; then the session ends
}

var usual = limits{sessions: 16, connect: 15 * time.Second, disconnected: 5 * time.Second, failed: 10 * time.Second}

// A Server has streams that viewers watch. As an http.Handler it begins and ends their sessions.
type Server struct {
	log    *slog.Logger
	limits limits

	mu       sync.Mutex
	closed   bool
	streams  map[string]*stream
	sessions map[string]*session // by the name that ends their address
	open     int                 // sessions, with those that are about to begin
	running  sync.WaitGroup      // sessions
}

// New makes a server without streams. It opens nothing until somebody watches.
func New(log *slog.Logger) *Server {
	return &Server{log: log, limits: usual, streams: map[string]*stream{}, sessions: map[string]*session{}}
}

// Add has viewers find a stream by its name. The sink sends H.264.
func (s *Server) Add(name string, sink *send.Sink) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[name] = &stream{name: name, sink: sink, log: s.log}
}

// Remove ends the sessions of a stream, which is not found any more. One that is not there is no error.
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

// Close ends all sessions, and waits for that. No other one begins.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for _, v := range s.sessions {
		v.end(errServerEnded)
	}
	s.mu.Unlock()
	s.running.Wait()
}

// Viewers are those who watch a stream, as destinations of it.
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

// reserve takes a place for a session of a stream. Whoever gets one begins it, or gives the place back.
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

// begin lets a session run that has a place. It returns false when its stream has ended meanwhile.
func (s *Server) begin(v *session) bool {
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

// find returns a session of a stream, or nil.
func (s *Server) find(name, id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.sessions[id]; v != nil && v.stream.name == name {
		return v
	}
	return nil
}
