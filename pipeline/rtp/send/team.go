// SPDX-License-Identifier: Apache-2.0

package send

import (
	"math"
	"sync/atomic"
	"time"
)

// A team divides the destinations of a stream among threads if one has not enough time for them. The sender's own turn
// schedules the bursts and sends them to the first share of the destinations. Helpers send the same bursts to the other
// shares as soon as they can, each in a turn of its own.
type team struct {
	sender  *transmitter
	threads *Threads
	helpers []*helper // all that were ever needed; the first shares-1 of them have destinations
	shares  int
	own     []*destination // of the sender's turn
	number  uint64         // of the train
	group   int            // bursts that helpers get at once
	unsent  int            // bursts that helpers have not got yet
	busy    time.Duration  // time that the sender's turn has spent with the train
	load    float64        // time that a train takes, on all threads together, as a part of the frame period; averaged
	calm    int            // trains since fewer shares would do
	logged  time.Time      // when it was last logged that there are too few processors
	waits   atomic.Bool    // the sender waits until the helpers have sent everything
}

// A helper sends bursts to its share of the destinations.
type helper struct {
	team  *team
	turn  turn
	train *train // changed only while the helper has nothing to do, like the next three fields
	dests []*destination
	bits  float64
	busy  time.Duration // time spent with the train
	want  atomic.Uint64 // the train's number and, in the lower 32 bits, the end of the packets to be sent
	sent  atomic.Uint64 // the same of those that were sent
	ended atomic.Bool
}

const (
	shareTime  = 0.5  // part of a frame period that a thread may spend sending a train before destinations move to another one
	calmTrains = 500  // trains for which fewer shares must do before there are fewer
	loadWeight = 0.25 // of the latest train in load
)

// begin divides the destinations of a train.
func (m *team) begin(t *train, dests []*destination) {
	m.divide(len(dests))
	m.number++
	share := func(i int) []*destination { return dests[i*len(dests)/m.shares : (i+1)*len(dests)/m.shares] }
	m.own, m.busy, m.unsent = share(0), 0, 0
	m.sender.turn.setBits(m.sender.bits * float64(len(m.own)))
	for len(m.helpers) < m.shares-1 {
		h := &helper{team: m}
		h.turn.apart = &m.sender.turn
		m.threads.startTurn(&h.turn, m.sender.bits*float64(len(m.own)), h.run)
		m.helpers = append(m.helpers, h)
	}
	for i, h := range m.helpers {
		h.train, h.dests, h.busy = t, nil, 0
		if i+1 < m.shares {
			h.dests = share(i + 1)
		}
		h.bits = m.sender.bits * float64(len(h.dests))
	}
}

// divide sets the number of shares for n destinations.
func (m *team) divide(n int) {
	need := min(max(int(math.Ceil(m.load/shareTime)), 1), n, m.threads.most)
	switch {
	case need > m.shares:
		m.shares, m.calm = need, 0
	case n < m.shares:
		m.shares = max(n, 1)
	case m.load < 0.8*shareTime*float64(m.shares-1):
		if m.calm++; m.calm >= calmTrains {
			m.shares, m.calm = m.shares-1, 0
		}
	default:
		m.calm = 0
	}
}

// push sends packets before to, like destination.push, and makes the helpers do the same. Because waking a thread costs
// more than sending a burst, they get several bursts at once, as many as may follow each other without a pause.
func (m *team) push(t *train, to int) {
	if m.unsent++; m.unsent == m.group || to == t.Len() {
		m.unsent = 0
		for _, h := range m.helpers[:m.shares-1] {
			h.want.Store(m.number<<32 | uint64(to))
			h.turn.wake()
		}
	}
	began := m.sender.pacer.now()
	for _, d := range m.own {
		d.push(t, to)
	}
	m.busy += m.sender.pacer.now() - began
}

// await waits until the helpers have sent what push gave them.
func (m *team) await() {
	m.waits.Store(true)
	busy := m.busy
	for _, h := range m.helpers {
		for h.sent.Load() != h.want.Load() {
			m.sender.turn.wait()
		}
		busy += h.busy
	}
	m.waits.Store(false)
	if m.sender.period > 0 {
		m.load += loadWeight * (busy.Seconds()/m.sender.period.Seconds() - m.load)
	}
	most, n := m.threads.most, len(*m.sender.dests.Load())
	if n > 1 && m.load > tooBusy*float64(most) && time.Since(m.logged) > logEvery {
		m.logged = time.Now()
		m.sender.config.Logger.Warn("rtp: the processors have too little time for so many destinations: frames may be lost",
			"destinations", n, "processors_needed", math.Ceil(10*m.load)/10, "processors", most)
	}
}

// run sends what the team gives the helper, until its turn moves or end is called.
func (h *helper) run() {
	clock := newClock()
	for !h.turn.moves() && !h.ended.Load() {
		want := h.want.Load()
		if want == h.sent.Load() {
			h.turn.wait()
			continue
		}
		began := clock.now()
		h.turn.setBits(h.bits)
		for _, d := range h.dests {
			d.push(h.train, int(uint32(want)))
		}
		h.busy += clock.now() - began
		h.sent.Store(want)
		if h.team.waits.Load() {
			h.team.sender.turn.wake()
		}
	}
}

// end ends the helpers. The sender's turn must have ended.
func (m *team) end() {
	for _, h := range m.helpers {
		h.ended.Store(true)
		h.turn.wake()
		<-h.turn.ended // ends: a burst does not wait
	}
	m.helpers, m.shares = nil, 1
}
