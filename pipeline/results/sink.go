// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/report"
)

// Errors of this package, for errors.Is.
var (
	ErrConfig  = errors.New("results: impossible configuration")
	ErrTooLong = errors.New("results: longer than a datagram")
)

// Config configures one output. At least one of UDP, Listen and Publish must be set.
type Config struct {
	UDP    []string // "host:port"; each gets one datagram for each frame
	Listen string   // "host:port"; TCP clients that connect get every line from then on
	// Publish, if not nil, receives the results of each frame, unless they could not be sent as a line. If it returns
	// an error, the frame counts as dropped.
	Publish func(report.Report) error
	Logger  *slog.Logger // nil: slog.Default
}

// CheckAddress returns an error unless address is "host:port", with a port from 1 to 65535. It does not resolve the
// host.
func CheckAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err == nil && host != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err == nil && n > 0 {
			return nil
		}
	}
	return fmt.Errorf("%q: must be host:port, such as 127.0.0.1:5010 or [::1]:5010", address)
}

// maxDatagram is the maximum payload of a UDP datagram over IPv4, in bytes.
const maxDatagram = 65507

// A Sink sends the results of each frame as one line of JSON. It implements pipeline.Sink and reads no pixels.
type Sink struct {
	udp     []*destination
	log     *slog.Logger
	server  *server // nil without Listen
	publish func(report.Report) error

	lines, errors atomic.Uint64
	closing       sync.Once
	closed        error
}

// Stats are the counters of a Sink.
type Stats struct {
	Lines   uint64 `json:"lines"`   // frames whose results were sent
	Errors  uint64 `json:"errors"`  // datagrams that could not be sent
	Clients int    `json:"clients"` // current number of TCP clients
	Dropped uint64 `json:"dropped"` // lines lost by clients that were too slow
}

// New returns a Sink with open sockets. Run closes them; if it is never called, Close must be.
func New(c Config) (*Sink, error) {
	if len(c.UDP) == 0 && c.Listen == "" && c.Publish == nil {
		return nil, fmt.Errorf("%w: give a udp destination, an address to listen at by tcp, or a bus", ErrConfig)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	s := &Sink{publish: c.Publish, log: c.Logger}
	for _, name := range c.UDP {
		d, err := connect(name)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%w: udp %q: %w", ErrConfig, name, err), s.Close())
		}
		s.udp = append(s.udp, d)
	}
	if c.Listen != "" {
		var err error
		if s.server, err = newServer(c.Listen, c.Logger); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// Needs implements pipeline.Sink. Frames of any format are accepted, also in device memory, because no pixels are read.
func (s *Sink) Needs() pipeline.SinkNeeds { return pipeline.SinkNeeds{OnDevice: true} }

// Run implements pipeline.Sink.
func (s *Sink) Run(ctx context.Context, q *pipeline.Queue) error {
	unfollow := s.follow(ctx)
	var line []byte
	for {
		f, err := q.Next(ctx)
		if err != nil {
			unfollow()
			return errors.Join(err, s.Close())
		}
		if s.server != nil || len(s.udp) > 0 {
			if line, err = report.Append(line[:0], f); err == nil {
				err = s.send(line)
			}
		}
		if s.publish != nil && err == nil {
			err = s.publish(report.Of(f))
		}
		if err != nil {
			q.Fail(f, pipeline.DropSink, fmt.Errorf("results cannot be sent: %w", err))
			continue
		}
		s.lines.Add(1)
		q.Done(f)
	}
}

// send sends a line to all clients and destinations. The only error is ErrTooLong: then the line was sent to the
// clients alone.
func (s *Sink) send(line []byte) error {
	if s.server != nil {
		s.server.send(line)
	}
	if len(s.udp) > 0 && len(line) > maxDatagram {
		return fmt.Errorf("%w: %d bytes, at most %d: receive them by tcp", ErrTooLong, len(line), maxDatagram)
	}
	for _, d := range s.udp {
		if _, err := d.socket.Load().Write(line); err != nil { // usually reports that an earlier datagram was refused
			s.errors.Add(1)
		}
	}
	return nil
}

// Addr returns the address for TCP clients, or nil without Listen.
func (s *Sink) Addr() net.Addr {
	if s.server == nil {
		return nil
	}
	return s.server.listener.Addr()
}

// Stats returns the counters.
func (s *Sink) Stats() Stats {
	st := Stats{Lines: s.lines.Load(), Errors: s.errors.Load()}
	if s.server != nil {
		st.Clients, st.Dropped = s.server.stats()
	}
	return st
}

// Close frees a Sink that is not running. Further calls only return the first one's error.
func (s *Sink) Close() error {
	s.closing.Do(func() {
		var errs []error
		for _, d := range s.udp {
			errs = append(errs, d.socket.Load().Close())
		}
		if s.server != nil {
			errs = append(errs, s.server.close())
		}
		s.closed = errors.Join(errs...)
	})
	return s.closed
}
