// SPDX-License-Identifier: Apache-2.0

package rtsp

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/bluenviron/gortsplib/v5/pkg/base"

	"github.com/tegracast/tegracast/pipeline/accept"
	"github.com/tegracast/tegracast/pipeline/flood"
	"github.com/tegracast/tegracast/pipeline/guesses"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// ErrPassword means that a server on an address reachable by others has no password.
var ErrPassword = errors.New("rtsp: others can reach this address: give it a user and a password")

// Config configures a Server.
type Config struct {
	Listen   string // address:port
	User     string // required user; empty: everyone may read, which is allowed only on a loopback address
	Password string
	Guesses  *guesses.Guesses // failed passwords, shared by all servers of the process; nil: not shared
	Groups   netip.Prefix     // groups for multicast readers; the zero value: none
	Logger   *slog.Logger

	idle, first time.Duration // set only by tests; 0: idleLimit, firstFrame
}

const (
	maxReaders = 112              // sessions; further ones are refused
	idleLimit  = 30 * time.Second // how long a client may be silent; RTCP packets of a UDP reader count
)

// A Server offers streams to readers by RTSP 1.0 (RFC 2326): over UDP, over TCP, and by multicast.
type Server struct {
	config   Config
	visits   *slog.Logger // logger for messages about readers
	addr     net.Addr
	groups   groups
	listener *listener
	serving  sync.WaitGroup

	mu       sync.Mutex
	streams  map[string]*stream
	sessions map[*session]bool
}

// stream is a stream that can be read.
type stream struct {
	name string
	sink *send.Sink
}

// Listen starts a server. The caller must close it.
func Listen(c Config) (*Server, error) {
	address, err := netip.ParseAddrPort(c.Listen)
	switch {
	case err != nil:
		return nil, fmt.Errorf("rtsp: %q: write an address and a port, such as 127.0.0.1:8554", c.Listen)
	case !address.Addr().IsLoopback() && (c.User == "" || c.Password == ""):
		return nil, fmt.Errorf("%w: %s", ErrPassword, c.Listen)
	}
	if c.Groups.IsValid() {
		if err := CheckGroups(c.Groups); err != nil {
			return nil, err
		}
	}
	c.idle, c.first = cmp.Or(c.idle, idleLimit), cmp.Or(c.first, firstFrame)
	if c.Guesses == nil {
		c.Guesses = &guesses.Guesses{}
	}
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("rtsp: %w", err)
	}
	s := &Server{
		config: c, visits: flood.Logger(c.Logger), addr: l.Addr(), groups: groups{within: c.Groups},
		listener: &listener{Listener: accept.Listener(l, c.Logger), patience: firstLimit, open: map[*conn]bool{}},
		streams:  map[string]*stream{}, sessions: map[*session]bool{},
	}
	s.serving.Go(s.accept)
	return s, nil
}

// accept serves clients until the listener is closed.
func (s *Server) accept() {
	for {
		c, err := s.listener.next()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				s.config.Logger.Error("rtsp: no more clients are accepted", "error", err)
			}
			return
		}
		c.server = s
		s.serving.Go(c.serve)
	}
}

// Add makes a stream available to readers under a name.
func (s *Server) Add(name string, sink *send.Sink) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[name] = &stream{name, sink}
}

// Remove removes a stream and ends its sessions. It does nothing if there is no such stream.
func (s *Server) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := s.streams[name]
	delete(s.streams, name)
	for r := range s.sessions {
		if r.stream == gone {
			_ = r.conn.Close() // ends its session
		}
	}
}

// find returns the stream with a name, or nil.
func (s *Server) find(name string) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[name]
}

// add adds a session and returns 0, or returns the status with which it is refused: there are too many sessions, or its
// stream has been removed or replaced.
func (s *Server) add(r *session) (refusal base.StatusCode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.sessions) >= maxReaders:
		return base.StatusServiceUnavailable
	case s.streams[r.stream.name] != r.stream:
		return base.StatusNotFound
	}
	s.sessions[r] = true
	return 0
}

func (s *Server) remove(r *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, r)
}

// heardFrom records that a reader of a group sends RTCP packets.
func (s *Server) heardFrom(x *group, from netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.sessions {
		if r.group == x && r.conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap() == from {
			r.heard.Store(time.Now().UnixNano())
		}
	}
}

// Close stops the server and ends all sessions.
func (s *Server) Close() {
	_ = s.listener.Close()
	s.listener.closeAll()
	s.serving.Wait() // ends: the connections are closed
}

// URL returns the URL at which a stream can be read on this machine.
func (s *Server) URL(name string) string {
	host := s.addr.(*net.TCPAddr).AddrPort()
	if host.Addr().IsUnspecified() {
		host = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), host.Port())
	}
	return fmt.Sprintf("rtsp://%s/%s", host, name)
}
