// SPDX-License-Identifier: Apache-2.0

package rtsp

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/bluenviron/gortsplib/v5"
	"github.com/bluenviron/gortsplib/v5/pkg/auth"
	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/format"

	"github.com/tegracast/tegracast/pipeline/guesses"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// ErrPassword means that a server that others can reach has no password.
var ErrPassword = errors.New("rtsp: others can reach this address: give it a user and a password")

// Config is how a server works.
type Config struct {
	Listen   string // address:port
	User     string // who may read; empty: everyone
	Password string
	Groups   netip.Prefix // that readers may ask for, by multicast; the zero value: none
	Logger   *slog.Logger
}

const (
	maxReaders = 64               // sessions; a further one is told that there is no room
	idleLimit  = 30 * time.Second // for which a connection, or a reader by UDP, may say nothing
	writeLimit = 10 * time.Second // for a client to take an answer
)

// A Server has streams that readers may take.
type Server struct {
	config Config
	server *gortsplib.Server
	addr   net.Addr
	groups groups

	listener *listener
	guesses  guesses.Guesses

	mu      sync.Mutex
	streams map[string]*stream
	readers map[*gortsplib.ServerSession]*reader
}

// stream is what can be read.
type stream struct {
	name     string
	sink     *send.Sink
	sessions *gortsplib.ServerStream
}

// Listen starts a server.
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
	s := &Server{config: c, groups: groups{within: c.Groups}, streams: map[string]*stream{}, readers: map[*gortsplib.ServerSession]*reader{}}
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("rtsp: %w", err)
	}
	s.addr, s.listener = l.Addr(), &listener{Listener: l, log: c.Logger, patience: firstLimit, open: map[*conn]bool{}}
	s.server = &gortsplib.Server{
		RTSPAddress: c.Listen, Listen: func(string, string) (net.Listener, error) { return s.listener, nil },
		// Packets of readers by UDP have sockets of their own. These are here for gortsplib, which else refuses UDP.
		UDPRTPAddress: "127.0.0.1:0", UDPRTCPAddress: "127.0.0.1:1",
		ListenPacket: func(string, string) (net.PacketConn, error) { return net.ListenPacket("udp4", "127.0.0.1:0") },
		ReadTimeout:  idleLimit, IdleTimeout: idleLimit, WriteTimeout: writeLimit,
		AuthMethods:              []auth.VerifyMethod{auth.VerifyMethodDigestMD5}, // the one that ffmpeg and GStreamer know
		DisableRTCPSenderReports: true, Handler: &handler{s},
	}
	if err := s.server.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("rtsp: %w", err), l.Close())
	}
	return s, nil
}

// Add has readers find a stream by its name.
func (s *Server) Add(name string, sink *send.Sink) error {
	// gortsplib answers SETUP by this. DESCRIBE is answered by the sink.
	all := &format.Generic{PayloadTyp: 96, RTPMa: "any/90000", ClockRat: 90000}
	one := &description.Media{Type: description.MediaTypeVideo, Formats: []format.Format{all}}
	st := &gortsplib.ServerStream{Server: s.server, Desc: &description.Session{Medias: []*description.Media{one}}}
	if err := st.Initialize(); err != nil {
		return fmt.Errorf("rtsp: stream %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[name] = &stream{name, sink, st}
	return nil
}

// Remove ends the sessions of a stream, which is not found any more. One that is not there is no error.
func (s *Server) Remove(name string) {
	s.mu.Lock()
	gone := s.streams[name]
	delete(s.streams, name)
	s.mu.Unlock()
	if gone != nil {
		gone.sessions.Close()
	}
}

// find returns the stream of a path, or nil.
func (s *Server) find(path string) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[strings.TrimPrefix(path, "/")]
}

// Close ends all sessions.
func (s *Server) Close() {
	s.server.Close()
	s.mu.Lock()
	gone := s.streams
	s.streams = map[string]*stream{}
	s.mu.Unlock()
	for _, st := range gone {
		st.sessions.Close()
	}
}

// URL is where a stream is read from this machine.
func (s *Server) URL(name string) string {
	host := s.addr.(*net.TCPAddr).AddrPort()
	if host.Addr().IsUnspecified() {
		host = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), host.Port())
	}
	return fmt.Sprintf("rtsp://%s/%s", host, name)
}
