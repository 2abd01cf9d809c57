// SPDX-License-Identifier: Apache-2.0

package group

import (
	"slices"
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// MaxMembers is the maximum number of members of a group.
const MaxMembers = 16

// Config configures a Group.
type Config struct {
	Name      string
	Sources   []string      // names of the members, 1 to MaxMembers
	Rate      pipeline.Rate // of the instants; zero: groups are opened by their first frame
	Delay     time.Duration // from an instant to the start of the exposure
	Tolerance time.Duration // how far the start of an exposure may be off; less than half a period of Rate
	Period    time.Duration // the longest frame period of a member
	Trigger   bool          // the members are triggered at each instant (SetConfig.Trigger)
}

// equal reports whether two configurations are the same.
func (c *Config) equal(o *Config) bool {
	a, b := *c, *o
	a.Sources, b.Sources = nil, nil
	return slices.Equal(c.Sources, o.Sources) && a.Name == b.Name && a.Rate == b.Rate && a.Delay == b.Delay &&
		a.Tolerance == b.Tolerance && a.Period == b.Period && a.Trigger == b.Trigger
}

const (
	// leastPatience limits the time for which a group stays open, beyond two frame periods of its slowest member. Exposure
	// and readout take a frame period each; the rest is for the transfer and a busy machine.
	leastPatience = 2 * time.Second
	// remembered is the number of groups that are kept, open or closed, to find out where late frames belong. It bounds
	// the open ones, too.
	remembered = 1024
	// recentGaps is the number of incomplete groups that Books lists.
	recentGaps = 16
)

// entry is a group of frames, open or closed.
type entry struct {
	number uint64
	serial uint64    // 1 for the first group that was opened
	at     time.Time // the instant, or the exposure that opened the group
	opened time.Time // when it was opened, from which its patience is measured
	open   bool
	edge   bool // closed without being in the books
	state  [MaxMembers]Reason
}

// member is the state of a member.
type member struct {
	seen    bool      // it has delivered a frame since it was started
	running bool      // it has delivered a frame with a number since then
	start   time.Time // entry.at of the first such frame
	last    time.Time // exposure of its latest frame with a number
	step    uint64    // entry.serial of the first group since the clock has stepped back; 0: it has not

	lost, damaged, outside uint64 // missing since the latest frame with a number

	frames, grouped uint64
	missing         [numReasons]uint64
	other           [numOthers]uint64
}

// other is the reason why a frame is in no group of the books.
type other uint8

const (
	otherDamaged other = iota
	otherDuplicate
	otherEdge
	otherLate
	otherOutside
	otherUntimed
	numOthers
)

func (o other) String() string {
	return [numOthers]string{"damaged", "duplicate", "edge", "late", "outside", "untimed"}[o]
}

// A Group numbers the frames of its members and keeps the books. Its lock is held for a few instructions, or for a look
// at the remembered groups.
type Group struct {
	cfg      Config
	instants Instants
	patience time.Duration

	mu       sync.Mutex
	members  []member
	ring     []entry // the oldest first, from next on
	next     int     // where the next group goes
	open     int     // number of open groups
	span     int     // the open ones are among the newest span groups
	begun    bool    // the books have begun
	first    time.Time
	number   uint64 // the latest number without a rate
	serial   uint64 // of the latest group
	complete uint64
	partial  uint64 // incomplete groups
	recent   []Gap
	missed   uint64
	refused  uint64
}

// New returns a group without frames.
func New(cfg Config) *Group {
	g := &Group{cfg: cfg, instants: Instants(cfg.Rate), patience: leastPatience + 2*cfg.Period}
	g.members, g.ring = make([]member, len(cfg.Sources)), make([]entry, remembered)
	return g
}

// take numbers a frame of member i, and returns the number; filling is true if finished follows.
func (g *Group) take(i int, exposure time.Time, lost, damaged uint64, filling bool, now time.Time) uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := &g.members[i]
	m.frames++
	m.lost, m.damaged = m.lost+lost, m.damaged+damaged
	exposure = exposure.Round(0) // by the wall clock, as the numbers are
	number, at, why := g.place(exposure)
	if why != otherEdge {
		if m.other[why]++; why == otherOutside {
			m.outside++
			g.passed(i, at)
		}
		m.seen = true
		g.settle(now)
		return 0
	}
	e := g.find(i, number, at)
	switch {
	case e == nil || !e.open && e.state[i] == delivered && (exposure.Before(m.last) || e.serial < m.step): // the clock has stepped back
		e = g.openEntry(number, at, now)
	case e.state[i] == delivered || e.state[i] == arriving:
		m.other[otherDuplicate]++
		return 0
	}
	if exposure.Before(m.last) {
		m.step = e.serial
	}
	m.last = exposure
	if e.state[i] = delivered; filling {
		e.state[i] = arriving
	}
	if !e.open && !filling {
		m.other[e.afterwards()]++
	}
	g.passed(i, e.at)
	m.lost, m.damaged, m.outside = 0, 0, 0
	if m.seen = true; !m.running {
		m.running, m.start = true, e.at
	}
	g.settle(now)
	return e.number
}

// afterwards returns the reason that counts for a frame that comes when its group is closed.
func (e *entry) afterwards() other {
	if e.edge {
		return otherEdge
	}
	return otherLate
}

// place returns the number of the group of an exposure, if there is a rate, and the group's time. why is otherEdge if
// the exposure has a place. If it is outside, at is when a group would have been there.
func (g *Group) place(exposure time.Time) (number uint64, at time.Time, why other) {
	if s := exposure.Unix(); exposure.IsZero() || s < 1 || s > latest {
		return 0, at, otherUntimed
	}
	if g.cfg.Rate.Num == 0 {
		return 0, exposure, otherEdge
	}
	number, off, ok := g.instants.Nearest(exposure.Add(-g.cfg.Delay))
	if !ok || off.Abs() > g.cfg.Tolerance {
		return 0, exposure.Add(-g.cfg.Delay), otherOutside
	}
	return number, g.instants.At(number), otherEdge
}

// find returns the group of a frame of member i: an open one that awaits it if possible, otherwise the newest; nil: none.
func (g *Group) find(i int, number uint64, at time.Time) (found *entry) {
	for k := range g.ring {
		e := &g.ring[(g.next-1-k+2*remembered)%remembered]
		if e.number == 0 {
			break
		}
		switch {
		case number != 0 && e.number != number, number == 0 && e.at.Sub(at).Abs() > g.cfg.Tolerance:
		case e.open && e.state[i] != delivered && e.state[i] != arriving:
			return e
		case found == nil:
			found = e
		}
		if number != 0 && found != nil {
			break
		}
	}
	return found
}

// openEntry opens a group in place of the oldest one. Number 0 stands for one made of the time.
func (g *Group) openEntry(number uint64, at, now time.Time) *entry {
	e := &g.ring[g.next]
	g.next = (g.next + 1) % remembered
	if e.open {
		g.decide(e)
	}
	if number == 0 {
		g.number = max(g.number+1, uint64(at.UnixMicro()))
		number = g.number
	}
	g.serial++
	*e = entry{number: number, serial: g.serial, at: at, opened: now, open: true}
	g.open, g.span = g.open+1, min(g.span+1, remembered)
	if g.first.IsZero() {
		g.first = now
	}
	return e
}
