// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tegracast/tegracast/pipeline/rtp/send"
	"github.com/tegracast/tegracast/pipeline/web"
)

// maxGuests is to how many destinations a stream is sent at the request of clients.
const maxGuests = 32

var errTooMany = errors.New("the stream is sent to as many destinations as clients may ask for: take one away (tegracast send --stop)")

var errRests = errors.New("the stream has failed and is opened again: ask for it when it runs")

// Send sends a stream to one more destination until Unsend, or until the stream is removed, and describes it.
func (s *Streams) Send(ctx context.Context, name, dest string) (sdp []byte, err error) {
	if !s.has(name) {
		return nil, web.ErrNoOutput
	}
	to, err := send.Resolve(ctx, dest)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x, known, err := s.mayAdd(name, to)
	if err != nil {
		return nil, err
	}
	if !known {
		if err := x.sink.Add(to); err != nil {
			return nil, err
		}
		x.guests = append(slices.Clone(x.guests), dest)
	}
	return x.sink.SDPTo(dest)
}

// mayAdd finds a stream that may be sent to one more destination, and whether it is sent there at a client's request already. The lock is
// held.
func (s *Streams) mayAdd(name string, to send.Destination) (x *stream, known bool, err error) {
	x = s.stream(name)
	switch {
	case x == nil:
		return nil, false, web.ErrNoOutput
	case x.sink == nil:
		return nil, false, errRests
	case slices.Contains(x.guests, to.Name):
		return x, true, nil
	case len(x.guests) >= maxGuests:
		return nil, false, fmt.Errorf("%w: %d", errTooMany, maxGuests)
	}
	if o := s.elsewhere(name, to, false); o != "" {
		return nil, false, fmt.Errorf("%s is a destination of %s already, and a receiver would get both streams as one: give another port", to.Name, o)
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
	return x.remove(dest)
}

// Redirect has a stream sent where a configuration says, which said was before, and says next now. A destination that a client has asked
// for is the configuration's from then on; if that goes back before Settle, it is the client's again. On an error nothing has changed.
func (s *Streams) Redirect(ctx context.Context, name string, was, next []string) error {
	resolved, err := send.ResolveAll(ctx, without(next, was))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.stream(name)
	if x.sink == nil {
		return nil // it is opened again as the configuration says
	}
	sent, gone, fresh := x.sink.Destinations(), without(was, next), without(next, was)
	taken, back := both(x.guests, fresh), both(x.lent, gone)
	gone, fresh = without(gone, back), without(fresh, taken)
	added := of(resolved, fresh)
	var renamed []string
	for _, g := range of(sent, without(x.guests, taken)) {
		if slices.ContainsFunc(added, func(d send.Destination) bool { return d.Addr == g.Addr }) {
			renamed = append(renamed, g.Name)
		}
	}
	if err := x.sink.Exchange(of(sent, append(gone, renamed...)), added); err != nil {
		return err
	}
	x.guests = append(without(without(x.guests, taken), renamed), back...)
	x.lent = append(without(x.lent, back), taken...)
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
		for _, g := range of(x.destinations(), x.guests) {
			if s.elsewhere(x.name, g, true) != "" {
				x.guests = without(x.guests, []string{g.Name})
				err = errors.Join(err, x.remove(g.Name))
			}
		}
	}
	return err
}

// elsewhere is another stream than name that is sent to dest, or "". One that only clients have sent there does not count if configured.
// The lock is held.
func (s *Streams) elsewhere(name string, to send.Destination, configured bool) string {
	for i := range s.list {
		o := &s.list[i]
		if o.name == name || configured && slices.Contains(o.guests, to.Name) {
			continue
		}
		if slices.ContainsFunc(o.destinations(), func(d send.Destination) bool { return d.Addr == to.Addr }) {
			return o.name
		}
	}
	return ""
}

// of returns those of the destinations that have one of the names.
func of(list []send.Destination, names []string) []send.Destination {
	return slices.DeleteFunc(slices.Clone(list), func(d send.Destination) bool { return !slices.Contains(names, d.Name) })
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

// has reports whether there is a stream of a name.
func (s *Streams) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream(name) != nil
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
