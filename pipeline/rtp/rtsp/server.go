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
}

const (
	maxReaders = 112              // sessions; further ones are refused
	idleLimit  = 30 * time.Second // how long a connection or a UDP reader may be silent
	writeLimit = 10 * time.Second // time limit for a client to accept an answer
)

// A Server offers streams to readers.
type Server struct {
	config Config
	visits *slog.Logger // logger for messages about readers
	server *gortsplib.Server
	addr   net.Addr
	groups groups

	listener *listener

	mu      sync.Mutex
	streams map[string]*stream
	readers map[*gortsplib.ServerSession]*reader
}

// stream is a stream that can be read.
type stream struct {
	name     string
	sink     *send.Sink
	sessions *gortsplib.ServerStream
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
	if c.Guesses == nil {
		c.Guesses = &guesses.Guesses{}
	}
	s := &Server{
		config: c, visits: flood.Logger(c.Logger), groups: groups{within: c.Groups},
		streams: map[string]*stream{}, readers: map[*gortsplib.ServerSession]*reader{},
	}
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("rtsp: %w", err)
	}
	s.addr, s.listener = l.Addr(), &listener{Listener: accept.Listener(l, c.Logger), patience: firstLimit, open: map[*conn]bool{}}
	s.server = &gortsplib.Server{
		RTSPAddress: c.Listen, Listen: func(string, string) (net.Listener, error) { return s.listener, nil },
		// gortsplib refuses UDP without these sockets, but they are not used: UDP readers have sockets of their own.
		UDPRTPAddress: "127.0.0.1:0", UDPRTCPAddress: "127.0.0.1:1",
		ListenPacket: deafSocket,
		ReadTimeout:  idleLimit, IdleTimeout: idleLimit, WriteTimeout: writeLimit,
		AuthMethods:              []auth.VerifyMethod{auth.VerifyMethodDigestMD5}, // the only method known to ffmpeg and GStreamer
		DisableRTCPSenderReports: true, Handler: &handler{s},
	}
	if err := s.server.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("rtsp: %w", err), l.Close())
	}
	return s, nil
}

// deafSocket opens a UDP socket that receives no packets.
func deafSocket(string, string) (net.PacketConn, error) {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	raw, err := c.SyscallConn()
	if err == nil {
		var deaf error
		err = raw.Control(func(fd uintptr) { deaf = flood.AdmitNothing(int(fd)) })
		err = errors.Join(err, deaf)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Add makes a stream available to readers under a name.
func (s *Server) Add(name string, sink *send.Sink) error {
	// gortsplib uses this description for SETUP. DESCRIBE is answered with the sink's.
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

// Remove removes a stream and ends its sessions. It does nothing if there is no such stream.
func (s *Server) Remove(name string) {
	s.mu.Lock()
	gone := s.streams[name]
	delete(s.streams, name)
	s.mu.Unlock()
	if gone != nil {
		gone.sessions.Close()
	}
}

// find returns the stream for a path, which may end with a slash, or nil.
func (s *Server) find(path string) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[strings.Trim(path, "/")]
}

// Close stops the server and ends all sessions.
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

// URL returns the URL at which a stream can be read on this machine.
func (s *Server) URL(name string) string {
	host := s.addr.(*net.TCPAddr).AddrPort()
	if host.Addr().IsUnspecified() {
		host = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), host.Port())
	}
	return fmt.Sprintf("rtsp://%s/%s", host, name)
}
