// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tegracast/tegracast/pipeline/rtp/send"
	"github.com/tegracast/tegracast/pipeline/web"
)

// maxGuests is to how many destinations a stream is sent at the request of clients.
const maxGuests = 32

var errTooMany = errors.New("the stream is sent to as many destinations as clients may ask for: take one away (tegracast send --stop)")

// Send sends a stream to one more destination until Unsend, or until the stream ends, and describes it.
func (s *Streams) Send(name, dest string) (sdp []byte, err error) {
	sink, known, err := s.mayAdd(name, dest)
	if err != nil {
		return nil, err
	}
	if !known {
		if err := sink.Add(dest); err != nil {
			return nil, err
		}
		s.mu.Lock()
		if x := s.stream(name); x != nil && x.sink == sink {
			x.guests = append(slices.Clone(x.guests), dest)
		}
		s.mu.Unlock()
	}
	return sink.SDPTo(dest)
}

// mayAdd finds a stream that may be sent to one more destination, and whether it is sent there at a client's request already.
func (s *Streams) mayAdd(name, dest string) (sink *send.Sink, known bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.stream(name)
	switch {
	case x == nil:
		return nil, false, web.ErrNoOutput
	case slices.Contains(x.guests, dest):
		return x.sink, true, nil
	case len(x.guests) >= maxGuests:
		return nil, false, fmt.Errorf("%w: %d", errTooMany, maxGuests)
	}
	is := func(d send.DestinationStats) bool { return d.Reader == "" && d.Address == dest }
	for _, o := range s.list {
		if o.name != name && slices.ContainsFunc(o.sink.Stats().Destinations, is) {
			return nil, false, fmt.Errorf("%s is a destination of %s already, and a receiver would get both streams as one: give another port",
				dest, o.name)
		}
	}
	return x.sink, false, nil
}

// Unsend ends what Send has begun.
func (s *Streams) Unsend(name, dest string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.stream(name)
	if x == nil {
		return web.ErrNoOutput
	}
	if !slices.Contains(x.guests, dest) {
		return web.ErrDestination
	}
	x.guests = slices.DeleteFunc(slices.Clone(x.guests), func(g string) bool { return g == dest })
	return x.sink.Remove(dest)
}

// Redirect has a stream sent where a configuration says, which said was before, and says next now. A destination that a client has asked
// for is the configuration's from then on; another stream is not sent there any more. On an error nothing has changed.
func (s *Streams) Redirect(name string, was, next []string) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.stream(name)
	gone, fresh := without(was, next), without(next, was)
	taken := slices.DeleteFunc(slices.Clone(x.guests), func(g string) bool { return !slices.Contains(fresh, g) })
	fresh = without(fresh, taken)
	for _, d := range gone {
		if err := x.sink.Remove(d); err != nil {
			return err
		}
	}
	for i, d := range fresh {
		if err := x.sink.Add(d); err != nil {
			for _, added := range fresh[:i] {
				err = errors.Join(err, x.sink.Remove(added))
			}
			for _, removed := range gone {
				err = errors.Join(err, x.sink.Add(removed))
			}
			return err
		}
	}
	x.guests = without(x.guests, taken)
	return s.dismiss(name, fresh)
}

// dismiss ends what clients have asked for where the stream name is sent now. The lock is held.
func (s *Streams) dismiss(name string, dests []string) (err error) {
	for i := range s.list {
		x := &s.list[i]
		for _, d := range dests {
			if x.name != name && slices.Contains(x.guests, d) {
				x.guests = without(x.guests, []string{d})
				err = errors.Join(err, x.sink.Remove(d))
			}
		}
	}
	return err
}

// without is list without those that are in other.
func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(other, s) })
}

// stream is that of a name, or nil. The lock is held.
func (s *Streams) stream(name string) *stream {
	if i := slices.IndexFunc(s.list, func(x stream) bool { return x.name == name }); i >= 0 {
		return &s.list[i]
	}
	return nil
}

// Guests are the destinations that a stream is sent to at the request of clients.
func (s *Streams) Guests(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.stream(name); x != nil {
		return x.guests
	}
	return nil
}
