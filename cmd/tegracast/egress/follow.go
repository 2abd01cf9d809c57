// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"github.com/tegracast/tegracast/pipeline/resolve"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// moved is a destination of a stream whose name leads elsewhere than when it was looked up.
type moved struct {
	stream string
	was    send.Destination
	to     netip.AddrPort
}

// Follow looks up again and again where the names of destinations lead, until ctx ends, and has the streams sent there: a name may have got
// another address, or a name server may have given a wrong one before. between calls change when streams may be changed.
func (s *Streams) Follow(ctx context.Context, log *slog.Logger, between func(change func() (changed bool))) {
	resolve.Follow(ctx, func() {
		if list := s.moved(ctx); len(list) > 0 {
			between(func() bool { return s.move(list, log) })
		}
	})
}

// moved looks up all names. One that is not known now is left as it is.
func (s *Streams) moved(ctx context.Context) (list []moved) {
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

// move has the streams sent to the new addresses, and reports whether any is.
func (s *Streams) move(list []moved, log *slog.Logger) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range list {
		x, to := s.stream(m.stream), send.Destination{Name: m.was.Name, Addr: m.to}
		if x == nil || !slices.Contains(x.destinations(), m.was) {
			continue // it has gone meanwhile
		}
		about := []any{"output", m.stream, "destination", m.was.Name, "was", m.was.Addr, "is", m.to}
		if o := s.elsewhere(m.stream, to, false); o != "" {
			log.Warn("the name of a destination leads where another stream is sent: it is still sent to the address before", append(about, "other", o)...)
			continue
		}
		if x.sink == nil {
			x.sent[slices.Index(x.sent, m.was)] = to
		} else if err := x.sink.Exchange([]send.Destination{m.was}, []send.Destination{to}); err != nil {
			log.Warn("the name of a destination has another address, which cannot be sent to", append(about, "error", err)...)
			continue
		} else {
			log.Info("the name of a destination has another address: the stream is sent there now", about...)
		}
		changed = true
	}
	return changed
}
