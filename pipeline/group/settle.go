// SPDX-License-Identifier: Apache-2.0

package group

import (
	"slices"
	"time"
)

// passed marks that member i has a frame of the time at, so that it delivers none for earlier groups.
func (g *Group) passed(i int, at time.Time) {
	m := &g.members[i]
	g.each(func(e *entry) {
		if e.state[i] != awaited || !e.at.Before(at.Add(-g.cfg.Tolerance)) {
			return
		}
		e.state[i] = m.reason()
	})
}

// reason returns why a frame of the member is missing that should have come before its newest one.
func (m *member) reason() Reason {
	switch {
	case !m.seen:
		return Stopped
	case m.damaged > 0:
		m.damaged--
		return Damaged
	case m.lost > 0:
		m.lost--
		return Lost
	case m.outside > 0:
		m.outside--
		return Outside
	}
	return Absent
}

// each calls do with every open group, the oldest first.
func (g *Group) each(do func(e *entry)) {
	for k := g.span; k > 0; k-- {
		e := &g.ring[(g.next-k+remembered)%remembered]
		if e.open {
			do(e)
		}
		if !e.open && k == g.span {
			g.span--
		}
	}
}

// settle begins the books if possible, and closes the groups that are decided or have waited too long.
func (g *Group) settle(now time.Time) {
	if g.open == 0 || !g.begun && !g.begin(now) {
		return
	}
	g.each(func(e *entry) {
		undecided := slices.ContainsFunc(e.state[:len(g.members)], func(r Reason) bool { return r == awaited || r == arriving })
		if !undecided || now.Sub(e.opened) > g.patience {
			g.decide(e)
		}
	})
}

// begin begins the books with the first group that every member can have, if all have started. After the patience it
// begins them without those that have not.
func (g *Group) begin(now time.Time) bool {
	var from time.Time
	for i := range g.members {
		if m := &g.members[i]; m.running {
			if m.start.After(from) {
				from = m.start
			}
		} else if now.Sub(g.first) <= g.patience {
			return false
		}
	}
	g.begun = true
	g.each(func(e *entry) {
		if e.at.Before(from) {
			g.discard(e)
		}
	})
	return true
}

// close closes a group.
func (g *Group) close(e *entry) {
	e.open = false
	g.open--
}

// discard closes a group that is not in the books.
func (g *Group) discard(e *entry) {
	g.close(e)
	e.edge = true
	for i := range g.members {
		if e.state[i] == delivered {
			g.members[i].other[otherEdge]++
		}
	}
}

// decide closes a group and enters it in the books.
func (g *Group) decide(e *entry) {
	if !g.begun {
		g.discard(e)
		return
	}
	g.close(e)
	gap := Gap{Number: e.number, At: e.at}
	for i := range g.members {
		m, why := &g.members[i], e.state[i]
		switch {
		case why == delivered:
			m.grouped++
			continue
		case why == arriving:
			why = Late // and finished counts the frame
		case why == awaited && m.seen:
			why = Silent
		case why == awaited:
			why = Stopped
		}
		if e.state[i] == awaited {
			e.state[i] = why
		}
		m.missing[why]++
		gap.Missing = append(gap.Missing, g.cfg.Sources[i]+" "+why.String())
	}
	if gap.Missing == nil {
		g.complete++
		return
	}
	g.partial++
	if len(g.recent) == recentGaps {
		g.recent = slices.Delete(g.recent, 0, 1)
	}
	g.recent = append(g.recent, gap)
}

// finished is called with the number of a frame that was filling when it was taken.
func (g *Group) finished(i int, number uint64, damaged bool, now time.Time) {
	if number == 0 {
		return // counted by take
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	m, how := &g.members[i], otherLate
	for k := range g.ring {
		e := &g.ring[(g.next-1-k+2*remembered)%remembered]
		if e.number != number || e.state[i] != arriving {
			continue
		}
		if e.state[i] = delivered; damaged {
			e.state[i] = Damaged
		}
		if e.open && !damaged {
			g.settle(now)
			return
		}
		how = e.afterwards()
		break
	}
	if damaged {
		how = otherDamaged
	}
	m.other[how]++
	g.settle(now)
}

// ended is called when member i has ended. Its missing frames are judged after the patience, or when it comes back: if
// every other member ends, too, the open groups are not in the books.
func (g *Group) ended(i int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members[i].rest()
	if !slices.ContainsFunc(g.members, func(m member) bool { return m.running }) {
		g.end()
	}
}

// Close ends the books. Frames that are taken later begin them anew.
func (g *Group) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end()
}

// end closes all groups: those that certainly lack a frame as incomplete, the others are of the edge.
func (g *Group) end() {
	g.each(func(e *entry) {
		if g.begun && slices.ContainsFunc(e.state[:len(g.members)], func(r Reason) bool { return r > delivered }) {
			g.decide(e)
		} else {
			g.discard(e)
		}
	})
	g.begun, g.first = false, time.Time{}
	for i := range g.members {
		g.members[i].rest()
	}
}

// rest notes that the member has ended: what was missing before does not count when it comes back.
func (m *member) rest() {
	m.seen, m.running, m.lost, m.damaged, m.outside, m.step = false, false, 0, 0, 0, 0
}

// Books returns the statistics. It closes the groups that have waited too long.
func (g *Group) Books() Books {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.settle(time.Now())
	b := Books{
		Group: g.cfg.Name, Complete: g.complete, Incomplete: g.partial, Open: g.open, Recent: slices.Clone(g.recent),
		Missed: g.missed, Refused: g.refused,
	}
	for i := range g.members {
		m := &g.members[i]
		x := Member{Source: g.cfg.Sources[i], Frames: m.frames, Grouped: m.grouped}
		x.Missing = counts(m.missing[:], func(k int) string { return Reason(k).String() })
		x.Other = counts(m.other[:], func(k int) string { return other(k).String() })
		b.Members = append(b.Members, x)
	}
	return b
}

// counts returns the counts that are not zero by name; nil: none.
func counts(list []uint64, name func(int) string) (m map[string]uint64) {
	for k, n := range list {
		if n > 0 {
			if m == nil {
				m = map[string]uint64{}
			}
			m[name(k)] = n
		}
	}
	return m
}
