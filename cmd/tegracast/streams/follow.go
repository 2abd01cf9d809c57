// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"github.com/tegracast/tegracast/pipeline/resolve"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// moved is a destination whose name resolves to another address than before.
type moved struct {
	stream string
	was    send.Destination
	to     netip.AddrPort
}

// Follow resolves the names of destinations periodically until ctx ends, and moves the streams: a name may have a new
// address, or a name server may have given a wrong one. It passes changes to between, which runs them when streams may be
// changed.
func (s *Set) Follow(ctx context.Context, log *slog.Logger, between func(change func() (changed bool))) {
	resolve.Follow(ctx, func() {
		if list := s.moved(ctx); len(list) > 0 {
			between(func() bool { return s.move(list, log) })
		}
	})
}

// moved resolves the names of all destinations, and returns the destinations whose address has changed. A name that
// does not resolve keeps its address.
func (s *Set) moved(ctx context.Context) (list []moved) {
	s.mu.Lock()
	var names []moved
	for i := range s.list {
		for _, d := range s.list[i].destinations() {
			if resolve.IsName(d.Name) {
				names = append(names, moved{s.list[i].name, d, d.Addr})
			}
		}
	}
	s.mu.Unlock()
	var all sync.WaitGroup
	for i := range names {
		m := &names[i]
		all.Go(func() {
			if addr, err := resolve.Again(ctx, "udp", m.was.Name, m.was.Addr); err == nil {
				m.to = addr
			}
		})
	}
	all.Wait()
	return slices.DeleteFunc(names, func(m moved) bool { return m.to == m.was.Addr })
}

// move sends streams to the new addresses of their destinations, except to an address that gets another stream or to
// which nothing can be sent. It reports whether anything changed.
func (s *Set) move(list []moved, log *slog.Logger) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range list {
		x, to := s.stream(m.stream), send.Destination{Name: m.was.Name, Addr: m.to}
		if x == nil || !slices.Contains(x.destinations(), m.was) {
			continue // it was removed meanwhile
		}
		about := []any{"output", m.stream, "destination", m.was.Name, "was", m.was.Addr, "is", m.to}
		if o := s.elsewhere(m.stream, to, false); o != "" {
			log.Warn("the name of a destination now has an address that gets another stream: "+
				"the stream is still sent to the previous address", append(about, "other", o)...)
			continue
		}
		if x.sink == nil {
			x.sent[slices.Index(x.sent, m.was)] = to
		} else if err := x.sink.Exchange([]send.Destination{m.was}, []send.Destination{to}); err != nil {
			log.Warn("the name of a destination has a new address, to which nothing can be sent", append(about, "error", err)...)
			continue
		} else {
			log.Info("the name of a destination has a new address: the stream is sent there now", about...)
		}
		changed = true
	}
	return changed
}
