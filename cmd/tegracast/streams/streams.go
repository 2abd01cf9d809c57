// SPDX-License-Identifier: Apache-2.0

// Package streams holds the RTP streams of an appliance: their destinations, RTSP readers and WHEP viewers, publishing to
// servers, the encoders, and the counters for the page and for a metrics server.
package streams

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline/guesses"
	"github.com/tegracast/tegracast/pipeline/printable"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtsp"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
	"github.com/tegracast/tegracast/pipeline/rtp/webrtc"
	"github.com/tegracast/tegracast/pipeline/totals"
)

// A Set holds the RTP streams of an appliance, open or at rest.
type Set struct {
	mu      sync.Mutex
	Guesses guesses.Guesses // counts wrong passwords here and at the other servers of the process
	list    []stream
	server  *rtsp.Server // nil: none
	viewers *webrtc.Server
}

// New returns an empty set without an RTSP server.
func New(log *slog.Logger) *Set { return &Set{viewers: webrtc.New(log)} }

// WHEP returns the handler for viewers of H.264 streams.
func (s *Set) WHEP() http.Handler { return s.viewers }

type stream struct {
	name      string
	sink      *send.Sink // nil: the stream is at rest
	publisher publisher  // nil: not published
	guests    []string   // destinations that clients have added
	lent      []string   // clients' destinations that a reload in progress has put into the configuration
	sent      []send.Destination
	before    []send.DestinationStats // counters of earlier sinks for its destinations
	totals    *totals.Totals          // totals for metrics
}

// publisher publishes a stream to a server until Close.
type publisher interface {
	Close()
	Trouble() string // why the server does not take the stream, or ""
}

// publish starts to publish a stream.
func (s *Set) publish(name string, sink *send.Sink, p *config.Publish, log *slog.Logger) (publisher, error) {
	if p.WHIP() {
		return s.viewers.Publish(name, p.ByWHIP())
	}
	to, err := p.ByRTSP(log)
	if err != nil {
		return nil, err
	}
	return rtsp.Publish(sink, to)
}

// Add adds a stream, or continues one at rest, and publishes it to p if p is not nil. Readers find it by name.
func (s *Set) Add(name string, sink *send.Sink, p *config.Publish, log *slog.Logger) error {
	x := stream{name: name, sink: sink, totals: &totals.Totals{}}
	if sink.Payload() == rtp.H264 {
		s.viewers.Add(name, sink)
	}
	if p != nil {
		var err error
		if x.publisher, err = s.publish(name, sink, p, log); err != nil {
			s.viewers.Remove(name)
			return fmt.Errorf("output %s: %w", name, err)
		}
	}
	s.mu.Lock()
	if old := s.stream(name); old != nil {
		x.resume(old, log)
		*old = x
	} else {
		s.list = append(s.list, x)
	}
	server := s.server
	s.mu.Unlock()
	if server != nil {
		server.Add(name, sink)
	}
	return nil
}

// Remove removes a stream and ends the sessions of its readers and viewers. Removing a stream that does not exist is no
// error.
func (s *Set) Remove(name string) {
	s.Rest(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = slices.DeleteFunc(s.list, func(x stream) bool { return x.name == name })
}

// Listen opens the RTSP server as c configures it. The previous server ends, with its sessions. It is an error if an
// address from the configuration is in use, but not for the default one.
func (s *Set) Listen(c config.RTSP, log *slog.Logger) error {
	s.endRTSP()
	if c.Address() == "" {
		return nil
	}
	cfg := rtsp.Config{Listen: c.Address(), User: c.User, Groups: c.Groups(), Guesses: &s.Guesses, Logger: log}
	if c.PasswordFile != "" {
		var err error
		if cfg.Password, err = config.Password(c.PasswordFile); err != nil {
			return fmt.Errorf("rtsp.password_file: %w", err)
		}
		if n := len(cfg.Password); n < guesses.LeastPassword {
			log.Warn("rtsp: the password is too short: the next release refuses it", "file", c.PasswordFile, "bytes", n,
				"least", guesses.LeastPassword)
		}
	}
	server, err := rtsp.Listen(cfg)
	switch {
	case c.Listen == "" && errors.Is(err, syscall.EADDRINUSE):
		log.Warn("no RTSP: another program uses this address: set rtsp.listen to another address, or to none", "listen", c.Address())
		return nil
	case err != nil:
		return fmt.Errorf("rtsp.listen: %w", err)
	}
	s.mu.Lock()
	s.server = server
	s.mu.Unlock()
	for _, x := range s.open() {
		server.Add(x.name, x.sink)
	}
	return nil
}

// Close ends all sessions and publishing, concurrently, and prevents new sessions.
func (s *Set) Close() {
	var closing sync.WaitGroup // a server that is gone delays its publisher
	for _, x := range s.open() {
		if x.publisher != nil {
			closing.Go(x.publisher.Close)
		}
	}
	closing.Go(s.viewers.Close)
	closing.Go(s.endRTSP)
	closing.Wait()
}

func (s *Set) endRTSP() {
	s.mu.Lock()
	server := s.server
	s.server = nil
	s.mu.Unlock()
	if server != nil {
		server.Close()
	}
}

// URL returns the RTSP URL of a stream for this machine, or "" if RTSP is not served.
func (s *Set) URL(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return ""
	}
	return s.server.URL(name)
}

// open returns the streams that are not at rest.
func (s *Set) open() []stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.list), func(x stream) bool { return x.sink == nil })
}

// A Reader receives a stream by RTSP or WHEP, or is the server to which it is published.
type Reader struct {
	Address string
	By      string // protocol by which it receives
	Session string // last element of the URL of its WHEP session; empty for others
	Frames  uint64 // sent completely
	Lost    uint64 // frames of which packets were not sent
}

// Report returns the readers of a stream, and its destinations that get no whole frames, each with the reason. published
// is the server to which it is published.
func (s *Set) Report(name, published string) (readers []Reader, troubles map[string]string) {
	troubles = map[string]string{}
	for _, x := range s.open() {
		if x.name != name {
			continue
		}
		for _, r := range s.receivers(x, x.sink.Stats()) {
			if r.Reader != "" {
				readers = append(readers, Reader{Address: r.Address, By: r.Reader, Session: r.Session, Frames: r.Frames, Lost: r.Cut})
			} else if r.Trouble != "" {
				troubles[r.Address] = r.Trouble
			}
		}
		if x.publisher != nil {
			if why := x.publisher.Trouble(); why != "" {
				troubles[published] = why
			}
		}
	}
	return readers, troubles
}

func (s *Set) readers(x stream) []send.DestinationStats {
	return slices.DeleteFunc(s.receivers(x, x.sink.Stats()), func(d send.DestinationStats) bool { return d.Reader == "" })
}

// receivers returns all receivers of a stream.
func (s *Set) receivers(x stream, st send.Stats) []send.DestinationStats {
	return append(x.added(st.Destinations), s.viewers.Viewers(x.name)...)
}

// Receivers returns all receivers of each stream.
func (s *Set) Receivers() map[string][]send.DestinationStats {
	all := map[string][]send.DestinationStats{}
	for _, x := range s.open() {
		all[x.name] = s.receivers(x, x.sink.Stats())
	}
	return all
}

// Status returns the readers' part of a status line, or "" if there are none.
func (s *Set) Status() string {
	var b strings.Builder
	for _, x := range s.open() {
		lost := uint64(0)
		all := s.readers(x)
		for _, r := range all {
			lost += r.Cut
		}
		if len(all) > 0 {
			fmt.Fprintf(&b, "  | %s to %d readers lost %d", x.name, len(all), lost)
		}
	}
	return b.String()
}

// Print prints the counters of each receiver, and the receivers' own reports.
func (s *Set) Print(w io.Writer) {
	for _, x := range s.open() {
		st := x.sink.Stats()
		fmt.Fprintf(w, "%s: DMA done to first packet p50 %s p99 %s p99.9 %s, to last p50 %s p99 %s p99.9 %s; bucket p50 %d p99 %d max %d packets\n",
			x.name, ms(st.First.P50), ms(st.First.P99), ms(st.First.P999),
			ms(st.Last.P50), ms(st.Last.P99), ms(st.Last.P999), st.Bucket.P50, st.Bucket.P99, st.Bucket.Max)
		for _, d := range s.receivers(x, st) {
			fmt.Fprintf(w, "%s to %s\n", x.name, printable.Text(d.String()))
		}
	}
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/1e6) }
