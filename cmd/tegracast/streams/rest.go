// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"log/slog"
	"slices"

	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// Rest ends the sessions of a stream's readers and viewers, and stops using its sink, which can then be closed. It
// keeps the destinations that clients have added, and the counters of all destinations, for the next sink that is
// passed to Add. If the stream is at rest or does not exist, Rest does nothing.
func (s *Set) Rest(name string) {
	s.mu.Lock()
	x, server := s.stream(name), s.server
	if x == nil || x.sink == nil {
		s.mu.Unlock()
		return
	}
	p := x.publisher
	x.sent, x.before = x.sink.Destinations(), x.added(x.sink.Stats().Destinations)
	x.before = slices.DeleteFunc(x.before, func(d send.DestinationStats) bool { return d.Reader != "" })
	x.sink, x.publisher = nil, nil
	s.mu.Unlock()
	if p != nil {
		p.Close()
	}
	s.viewers.Remove(name)
	if server != nil {
		server.Remove(name)
	}
}

// resume continues x with the clients' destinations and the counters of old, which is at rest.
func (x *stream) resume(old *stream, log *slog.Logger) {
	x.lent, x.before, x.totals = old.lent, old.before, old.totals
	configured := x.sink.Destinations()
	for _, g := range of(old.sent, old.guests) {
		if slices.ContainsFunc(configured, func(d send.Destination) bool { return d.Addr == g.Addr }) {
			continue // a reload has put it into the configuration
		}
		if err := x.sink.Add(g); err != nil {
			log.Warn("a destination that a client has asked for is lost: ask for it again (tegracast send)", "destination", g.Name, "error", err)
			continue
		}
		x.guests = append(x.guests, g.Name)
	}
}

// destinations returns the destinations of a stream, or, at rest, those that it will have again.
func (x *stream) destinations() []send.Destination {
	if x.sink == nil {
		return x.sent
	}
	return x.sink.Destinations()
}

// remove removes a destination.
func (x *stream) remove(dest string) error {
	if x.sink == nil {
		x.sent = slices.DeleteFunc(x.sent, func(d send.Destination) bool { return d.Name == dest })
		return nil
	}
	return x.sink.Remove(dest)
}

// added adds the counters of earlier sinks to those of the destinations in list, except readers', and returns list.
func (x *stream) added(list []send.DestinationStats) []send.DestinationStats {
	for i := range list {
		d := &list[i]
		k := slices.IndexFunc(x.before, func(b send.DestinationStats) bool { return b.Address == d.Address })
		if k < 0 || d.Reader != "" {
			continue
		}
		b := &x.before[k]
		d.Packets, d.Bytes, d.Frames, d.Cut = d.Packets+b.Packets, d.Bytes+b.Bytes, d.Frames+b.Frames, d.Cut+b.Cut
		d.Dropped, d.Refused, d.Errors = d.Dropped+b.Dropped, d.Refused+b.Refused, d.Errors+b.Errors
	}
	return list
}
