// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// maxGuests is the maximum number of destinations that clients can add to a stream.
const maxGuests = 32

// Errors of Send and Unsend that callers distinguish. Only Unsend returns ErrNotAsked.
var (
	ErrNoStream = errors.New("there is no stream of that name")
	ErrNotAsked = errors.New("the stream is not sent there at a client's request")
)

var errTooMany = errors.New("clients have added as many destinations as they may: remove one (tegracast send --stop)")

var errRests = errors.New("the stream has failed and is opened again: ask for it when it runs")

// Send adds a destination to a stream and returns the SDP for it. The stream is sent there until Unsend, until the
// stream is removed, or until the configuration sends a stream to that address.
func (s *Set) Send(ctx context.Context, name, dest string) (sdp []byte, err error) {
	if !s.has(name) {
		return nil, ErrNoStream
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

// mayAdd returns a stream to which the destination may be added. known means that a client has already added it. The lock
// must be held.
func (s *Set) mayAdd(name string, to send.Destination) (x *stream, known bool, err error) {
	x = s.stream(name)
	switch {
	case x == nil:
		return nil, false, ErrNoStream
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

// Unsend removes a destination that Send has added.
func (s *Set) Unsend(name, dest string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.stream(name)
	if x == nil {
		return ErrNoStream
	}
	if !slices.Contains(x.guests, dest) {
		return ErrNotAsked
	}
	x.guests = slices.DeleteFunc(slices.Clone(x.guests), func(g string) bool { return g == dest })
	return x.remove(dest)
}

// Redirect changes the configured destinations of a stream from was to next. A destination in next that a client has
// added becomes the configuration's. If the configuration drops it again before Settle, it is the client's again. A
// client's destination that has the address of one in next, but another name, is removed. An error leaves everything
// unchanged. For a stream at rest it does nothing, since the stream is reopened with the configuration's destinations.
func (s *Set) Redirect(ctx context.Context, name string, was, next []string) error {
	resolved, err := send.ResolveAll(ctx, without(next, was))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.stream(name)
	if x.sink == nil {
		return nil // the configuration applies when it is reopened
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

// Settle ends a reload: clients' destinations that the configuration has taken remain the configuration's, and clients'
// destinations to which the configuration now sends another stream are removed.
func (s *Set) Settle() error {
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

// elsewhere returns the name of a stream other than name that is sent to the same destination, or "". If configured is
// true, it ignores destinations that only clients have added. The lock must be held.
func (s *Set) elsewhere(name string, to send.Destination, configured bool) string {
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

// of returns the destinations that have one of the names.
func of(list []send.Destination, names []string) []send.Destination {
	return slices.DeleteFunc(slices.Clone(list), func(d send.Destination) bool { return !slices.Contains(names, d.Name) })
}

// without returns the elements of list that are not in other.
func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(other, s) })
}

// both returns the elements that are in both lists.
func both(list, other []string) []string { return without(list, without(list, other)) }

// stream returns the stream of that name, or nil. The lock must be held.
func (s *Set) stream(name string) *stream {
	if i := slices.IndexFunc(s.list, func(x stream) bool { return x.name == name }); i >= 0 {
		return &s.list[i]
	}
	return nil
}

// has reports whether there is a stream of that name.
func (s *Set) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream(name) != nil
}

// Guests returns the destinations that clients have added to a stream. The slice must not be changed.
func (s *Set) Guests(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.stream(name); x != nil {
		return x.guests
	}
	return nil
}
