// SPDX-License-Identifier: Apache-2.0

package group

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// SetConfig configures a Set.
type SetConfig struct {
	// Trigger starts an exposure of a source now, for groups with Config.Trigger. It returns ErrLate, and starts none, if
	// it comes to that only after latest, which is a wall clock's time.
	Trigger func(source string, latest time.Time) error
	Logger  *slog.Logger
}

// ErrLate means that an exposure was not started, because it would have been too late for its instant.
var ErrLate = errors.New("it is too late for the instant")

// A Set holds the groups of a program. They can be changed while the sources run. All methods may be called concurrently.
type Set struct {
	cfg SetConfig

	mu     sync.Mutex
	groups []*openGroup
	seats  map[string]*Seat // by source
	faults pipeline.FaultLog
}

// openGroup is a group with the goroutine that triggers its members.
type openGroup struct {
	*Group
	cancel  context.CancelFunc
	done    chan struct{} // nil: it does not run
	logged  uint64        // incomplete groups that Watch has seen
	untimed uint64        // bit i: Watch has said that frames of member i have no time
}

// NewSet returns a set without groups.
func NewSet(cfg SetConfig) *Set { return &Set{cfg: cfg, seats: map[string]*Seat{}} }

// Configure replaces the groups. Those that stay the same keep their books, and their members are not disturbed. The
// groups that are new trigger their members after Start.
func (s *Set) Configure(list []Config) {
	s.mu.Lock()
	var keep, gone []*openGroup
	for _, g := range s.groups {
		if slices.ContainsFunc(list, func(c Config) bool { return c.equal(&g.cfg) }) {
			keep = append(keep, g)
		} else {
			gone = append(gone, g)
		}
	}
	s.groups = nil
	for _, c := range list {
		i := slices.IndexFunc(keep, func(g *openGroup) bool { return g.cfg.Name == c.Name })
		if i < 0 {
			s.groups = append(s.groups, &openGroup{Group: New(c)})
		} else {
			s.groups = append(s.groups, keep[i])
		}
	}
	for name, seat := range s.seats {
		seat.at.Store(s.chair(name))
	}
	s.mu.Unlock()
	for _, g := range gone {
		g.stop()
		g.Close()
	}
}

// chair returns the place of a source in its group, or nil if it belongs to none. The lock must be held.
func (s *Set) chair(source string) *chair {
	for _, g := range s.groups {
		if i := slices.Index(g.cfg.Sources, source); i >= 0 {
			return &chair{g.Group, i}
		}
	}
	return nil
}

// Seat returns the Member of a source, which stays the same when the groups change.
func (s *Set) Seat(source string) *Seat {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seats[source] == nil {
		seat := &Seat{}
		seat.at.Store(s.chair(source))
		s.seats[source] = seat
	}
	return s.seats[source]
}

// Start starts the groups that trigger their members and do not do so yet. They do until ctx ends.
func (s *Set) Start(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		if !g.cfg.Trigger || g.done != nil {
			continue
		}
		var own context.Context
		own, g.cancel = context.WithCancel(ctx)
		g.done = make(chan struct{})
		go func() {
			defer close(g.done)
			g.trigger(own, s.cfg.Trigger)
		}()
	}
}

// stop ends trigger.
func (g *openGroup) stop() {
	if g.done != nil {
		g.cancel()
		<-g.done // ends: cancel has ended its context
	}
}

// trigger triggers the members at each instant until ctx ends. It omits an instant for which it is so late that the
// exposures would be outside of the tolerance.
func (g *Group) trigger(ctx context.Context, fire func(source string, latest time.Time) error) {
	m := Metronome{Instants: g.instants, Slack: g.cfg.Tolerance / 2}
	for {
		n, missed, ok := m.Next(ctx)
		refused := uint64(0)
		if ok {
			late := false
			for _, source := range g.cfg.Sources {
				if err := fire(source, m.At(n).Add(m.Slack)); errors.Is(err, ErrLate) {
					late = true
				} else if err != nil {
					refused++
				}
			}
			if late {
				missed++
			}
		}
		if missed+refused > 0 {
			g.mu.Lock()
			g.missed, g.refused = g.missed+missed, g.refused+refused
			g.mu.Unlock()
		}
		if !ok {
			return
		}
	}
}

// Watch closes groups that have waited too long, and logs incomplete ones, until ctx ends.
func (s *Set) Watch(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.look(time.Now())
		case <-ctx.Done():
			return
		}
	}
}

// look logs without the lock: a log that takes nothing must not stop status and metrics.
func (s *Set) look(now time.Time) {
	for _, log := range s.news(now) {
		log()
	}
}

// news returns what there is to log of the groups.
func (s *Set) news(now time.Time) (list []func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		b := g.Books()
		for i, m := range b.Members {
			if m.Other[otherUntimed.String()] == 0 || g.untimed&(1<<i) != 0 {
				continue
			}
			g.untimed |= 1 << i
			list = append(list, func() {
				s.cfg.Logger.Warn("frames of a source are in no group: nothing says when their exposure began, as with a driver of a camera "+
					"that stamps the end of frames, or by another clock than the monotonic one", "group", b.Group, "source", m.Source)
			})
		}
		more := b.Incomplete - g.logged
		if g.logged = b.Incomplete; more == 0 {
			continue
		}
		if left, due := s.faults.Due(b.Group, now); due {
			list = append(list, func() {
				s.cfg.Logger.Warn("frames are missing in a group", pipeline.Unlogged([]any{
					"group", b.Group, "incomplete", more,
					"latest", b.Recent[len(b.Recent)-1].String(),
				}, left)...)
			})
		}
	}
	return list
}

// Books returns the statistics of all groups.
func (s *Set) Books() (list []Books) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		list = append(list, g.Books())
	}
	return list
}

// Close ends all groups. The sources may still run, and their frames get numbers.
func (s *Set) Close() {
	s.mu.Lock()
	groups := slices.Clone(s.groups)
	s.mu.Unlock()
	for _, g := range groups {
		g.stop()
		g.Close()
	}
}

// A chair is the place of a source in its group.
type chair struct {
	group *Group
	i     int
}

// A Seat implements pipeline.Member for a source, whether it belongs to a group or not.
type Seat struct {
	at      atomic.Pointer[chair]
	filling *chair // of the frame that is filling, which keeps its group; nil: none. Used by the source's goroutine only
}

// Take implements pipeline.Member.
func (s *Seat) Take(f *pipeline.Frame, lost, damaged uint64) {
	c := s.at.Load()
	if s.filling = nil; c == nil {
		return
	}
	filling, exposure := f.Filling(), f.Times.ExposureStart
	if !f.Times.Reference.IsZero() && !c.group.cfg.Trigger { // triggers are timed by this machine's clock
		exposure = f.Times.Reference
	}
	if f.Group = c.group.take(c.i, exposure, lost, damaged, filling, time.Now()); filling {
		s.filling = c
	}
}

// Finished implements pipeline.Member.
func (s *Seat) Finished(f *pipeline.Frame, damaged bool) {
	if c := s.filling; c != nil {
		s.filling = nil
		c.group.finished(c.i, f.Group, damaged, time.Now())
	}
}

// Ended implements pipeline.Member.
func (s *Seat) Ended() {
	if c := s.at.Load(); c != nil {
		c.group.ended(c.i)
	}
}
