// SPDX-License-Identifier: Apache-2.0

// Package egress has the RTP streams of an appliance: their books for people and for a metrics server, and the RTSP server at which
// readers ask for them, and the sessions of those who watch them by WHEP.
package egress

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

	"github.com/tegracast/tegracast/cmd/tegracast/config/readers"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
	"github.com/tegracast/tegracast/pipeline/rtsp"
	"github.com/tegracast/tegracast/pipeline/web"
	"github.com/tegracast/tegracast/pipeline/webrtc"
)

// Streams are those that are open.
type Streams struct {
	mu      sync.Mutex
	list    []stream
	server  *rtsp.Server // nil: there is none
	viewers *webrtc.Server
}

// New are none yet, which nobody can read by RTSP.
func New(log *slog.Logger) *Streams { return &Streams{viewers: webrtc.New(log)} }

// WHEP is where viewers ask for streams of H.264.
func (s *Streams) WHEP() http.Handler { return s.viewers }

type stream struct {
	name      string
	sink      *send.Sink // nil: it rests
	publisher publisher  // nil: it is not published
	guests    []string   // destinations that clients have asked for
	lent      []string   // of them, those that a reload which is not over has taken
	sent      []send.Destination
	before    []send.DestinationStats // what the sinks before this one have sent to its destinations
}

// publisher has a server take a stream until Close.
type publisher interface{ Close() }

// publish begins to publish a stream, which viewers find if it is of H.264.
func (s *Streams) publish(name string, sink *send.Sink, p *readers.Publish, log *slog.Logger) (publisher, error) {
	if p.WHIP() {
		return s.viewers.Publish(name, p.ByWHIP())
	}
	to, err := p.ByRTSP(log)
	if err != nil {
		return nil, err
	}
	return rtsp.Publish(sink, to)
}

// Add adds a stream, or has one that rests go on, and publishes it where p says, if it is there. Readers find it by its name.
func (s *Streams) Add(name string, sink *send.Sink, p *readers.Publish, log *slog.Logger) error {
	x := stream{name: name, sink: sink}
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
	if server == nil {
		return nil
	}
	return server.Add(name, sink)
}

// Remove forgets a stream and ends the sessions of its readers and viewers. One that is not there is no error.
func (s *Streams) Remove(name string) {
	s.Rest(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = slices.DeleteFunc(s.list, func(x stream) bool { return x.name == name })
}

// Listen has the streams read by RTSP as c says, and tells where. The server that there was ends, with its sessions. The default
// address may be taken by somebody else; one that the configuration names may not.
func (s *Streams) Listen(c readers.RTSP, out io.Writer, log *slog.Logger) error {
	s.endRTSP()
	if c.Address() == "" {
		return nil
	}
	cfg := rtsp.Config{Listen: c.Address(), User: c.User, Groups: c.Groups(), Logger: log}
	if c.PasswordFile != "" {
		var err error
		if cfg.Password, err = readers.Password(c.PasswordFile); err != nil {
			return fmt.Errorf("rtsp.password_file: %w", err)
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
	var urls []string
	for _, x := range s.open() {
		if err := server.Add(x.name, x.sink); err != nil {
			return err
		}
		urls = append(urls, server.URL(x.name))
	}
	if len(urls) > 0 {
		fmt.Fprintf(out, "rtsp: %s\n", strings.Join(urls, " "))
	}
	return nil
}

// Close ends all sessions, beside each other. No other one begins.
func (s *Streams) Close() {
	var closing sync.WaitGroup // a server that has gone keeps its publisher for a while
	for _, x := range s.open() {
		if x.publisher != nil {
			closing.Go(x.publisher.Close)
		}
	}
	closing.Go(s.viewers.Close)
	closing.Go(s.endRTSP)
	closing.Wait()
}

func (s *Streams) endRTSP() {
	s.mu.Lock()
	server := s.server
	s.server = nil
	s.mu.Unlock()
	if server != nil {
		server.Close()
	}
}

// URL is where a stream is read by RTSP from this machine; empty: nowhere.
func (s *Streams) URL(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return ""
	}
	return s.server.URL(name)
}

// open are the streams of now.
func (s *Streams) open() []stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.list), func(x stream) bool { return x.sink == nil })
}

// Readers are those that take a stream by RTSP or WHEP.
func (s *Streams) Readers(name string) (list []web.Reader) {
	for _, x := range s.open() {
		if x.name != name {
			continue
		}
		for _, r := range s.readers(x) {
			list = append(list, web.Reader{Address: r.Address, By: r.Reader, Frames: r.Frames, Lost: r.Cut})
		}
	}
	return list
}

func (s *Streams) readers(x stream) []send.DestinationStats {
	return slices.DeleteFunc(s.receivers(x, x.sink.Stats()), func(d send.DestinationStats) bool { return d.Reader == "" })
}

// receivers are all that a stream is sent to.
func (s *Streams) receivers(x stream, st send.Stats) []send.DestinationStats {
	return append(x.added(st.Destinations), s.viewers.Viewers(x.name)...)
}

// Receivers are all whom each stream is sent to.
func (s *Streams) Receivers() map[string][]send.DestinationStats {
	all := map[string][]send.DestinationStats{}
	for _, x := range s.open() {
		all[x.name] = s.receivers(x, x.sink.Stats())
	}
	return all
}

// Status is for a status line; empty: nobody has asked for a stream.
func (s *Streams) Status() string {
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

// Print prints what each receiver was sent, and what it reports itself.
func (s *Streams) Print(w io.Writer) {
	for _, x := range s.open() {
		st := x.sink.Stats()
		fmt.Fprintf(w, "%s: DMA done to first packet p50 %s p99 %s p99.9 %s, to last p50 %s p99 %s p99.9 %s; bucket p50 %d p99 %d max %d packets\n",
			x.name, ms(st.First.P50), ms(st.First.P99), ms(st.First.P999),
			ms(st.Last.P50), ms(st.Last.P99), ms(st.Last.P999), st.Bucket.P50, st.Bucket.P99, st.Bucket.Max)
		for _, d := range s.receivers(x, st) {
			fmt.Fprintf(w, "%s to %v\n", x.name, d)
		}
	}
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/1e6) }
