// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/tegracast/tegracast/pipeline/rtp/send"
	"github.com/tegracast/tegracast/pipeline/web"
)

// maxGuests is to how many destinations a stream is sent at the request of clients.
const maxGuests = 32

var errTooMany = errors.New("the stream is sent to as many destinations as clients may ask for: take one away (tegracast send --stop)")

// Send sends a stream to one more destination until Unsend, or until the stream ends, and describes it.
func (s *Streams) Send(name, dest string) (sdp []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, known, err := s.mayAdd(name, dest)
	if err != nil {
		return nil, err
	}
	if !known {
		if err := x.sink.Add(dest); err != nil {
			return nil, err
		}
		x.guests = append(slices.Clone(x.guests), dest)
	}
	return x.sink.SDPTo(dest)
}

// mayAdd finds a stream that may be sent to one more destination, and whether it is sent there at a client's request already. The lock is
// held.
func (s *Streams) mayAdd(name, dest string) (x *stream, known bool, err error) {
	x = s.stream(name)
	switch {
	case x == nil:
		return nil, false, web.ErrNoOutput
	case slices.Contains(x.guests, dest):
		return x, true, nil
	case len(x.guests) >= maxGuests:
		return nil, false, fmt.Errorf("%w: %d", errTooMany, maxGuests)
	}
	if o := s.elsewhere(name, dest, false); o != "" {
		return nil, false, fmt.Errorf("%s is a destination of %s already, and a receiver would get both streams as one: give another port", dest, o)
	}
	return x, false, nil
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
// for is the configuration's from then on; if that goes back before Settle, it is the client's again. On an error nothing has changed.
func (s *Streams) Redirect(name string, was, next []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.stream(name)
	gone, fresh := without(was, next), without(next, was)
	taken, back := both(x.guests, fresh), both(x.lent, gone)
	gone, fresh = without(gone, back), without(fresh, taken)
	renamed := slices.DeleteFunc(without(x.guests, taken), func(g string) bool {
		return !slices.ContainsFunc(fresh, func(d string) bool { return same(g, d) })
	})
	if err := exchange(x.sink, append(gone, renamed...), fresh); err != nil {
		return err
	}
	x.guests = append(without(without(x.guests, taken), renamed), back...)
	x.lent = append(without(x.lent, back), taken...)
	return nil
}

// exchange has a sink sent to what fresh names, and not to what gone names. On an error nothing has changed.
func exchange(sink *send.Sink, gone, fresh []string) error {
	for i, d := range gone {
		if err := sink.Remove(d); err != nil {
			return errors.Join(err, exchange(sink, nil, gone[:i]))
		}
	}
	for i, d := range fresh {
		if err := sink.Add(d); err != nil {
			return errors.Join(err, exchange(sink, fresh[:i], gone))
		}
	}
	return nil
}

// Settle says that a reload is over: clients' destinations that the configuration has taken stay its own, and where it sends a stream no
// client has another one sent.
func (s *Streams) Settle() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for i := range s.list {
		x := &s.list[i]
		x.lent = nil
		for _, g := range x.guests {
			if s.elsewhere(x.name, g, true) != "" {
				x.guests = without(x.guests, []string{g})
				err = errors.Join(err, x.sink.Remove(g))
			}
		}
	}
	return err
}

// elsewhere is another stream than name that is sent to dest, or "". One that only clients have sent there does not count if configured.
// The lock is held.
func (s *Streams) elsewhere(name, dest string, configured bool) string {
	for _, o := range s.list {
		if o.name == name || configured && slices.Contains(o.guests, dest) {
			continue
		}
		for _, d := range o.sink.Stats().Destinations {
			if d.Reader == "" && same(d.Address, dest) {
				return o.name
			}
		}
	}
	return ""
}

// same says whether two destinations are one.
func same(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := net.ResolveUDPAddr("udp", a)
	y, errY := net.ResolveUDPAddr("udp", b)
	return errX == nil && errY == nil && x.String() == y.String()
}

// without is list without those that are in other.
func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(other, s) })
}

// both is what is in both lists.
func both(list, other []string) []string { return without(list, without(list, other)) }

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
