// SPDX-License-Identifier: Apache-2.0

package send

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/pipeline/monotonic"
)

// A team divides the destinations of a stream among threads if one has not enough time for them. The sender's own turn
// schedules the bursts and sends them to the first share of the destinations. Helpers send the same bursts to the other
// shares, each in a turn of its own on another thread.
type team struct {
	sender  *transmitter
	threads *Threads
	helpers []*helper      // one for each share but the first
	retired []*helper      // helpers that end
	own     []*destination // of the sender's turn
	bursts  []burst        // of the train, if there are helpers, which read those that they were given
	made    int            // bursts of the train so far
	number  uint64         // of the train
	group   int            // bursts that helpers get at once, if the frame is complete
	given   int            // bursts that helpers have got
	busy    time.Duration  // time that the sender's turn has spent with the train
	load    float64        // time that a train takes, on all threads together, as a part of the frame period; averaged
	calm    int            // trains since fewer shares would do
	logged  time.Time      // when it was last logged that there are too few processors
	waits   atomic.Bool    // the sender waits until the helpers have sent everything
}

// A burst is a part of a train that is sent at once, with its place in the schedule.
type burst struct {
	to        int           // end of its packets
	departure time.Duration // by the monotonic clock
	interval  time.Duration // of the schedule; 0: no pauses
	early     bool          // the kernel takes it before its departure
}

// A helper sends bursts to its share of the destinations.
type helper struct {
	team  *team
	turn  turn
	train *train // changed only while the helper has nothing to do, like the next three fields
	dests []*destination
	bits  float64
	busy  time.Duration // time spent with the train
	due   time.Duration // when the latest burst was due
	want  atomic.Uint64 // the train's number and, in the lower 32 bits, the number of bursts to be sent
	sent  atomic.Uint64 // the same of those that were sent
	ended atomic.Bool
}

const (
	shareTime   = 0.5  // part of a frame period that a thread may spend sending a train before destinations move to another one
	calmTrains  = 500  // trains for which fewer shares must do before there are fewer
	loadWeight  = 0.25 // of the latest train in load
	machineTime = 0.8  // part of all processors' time that sending may take before that is logged
)

// init makes m the team of x, without helpers.
func (m *team) init(x *transmitter) {
	m.sender, m.threads, m.group = x, x.config.Threads, maxBehind
	if x.config.Pacing == PaceNarrow || x.config.Pacing == PaceWide {
		m.group = 1
	}
}

// begin divides the destinations of a train.
func (m *team) begin(t *train, dests []*destination) {
	m.divide(len(dests))
	m.number++
	m.made, m.given, m.busy = 0, 0, 0
	if len(m.helpers) > 0 && len(m.bursts) < t.Len() {
		m.bursts = make([]burst, t.Len())
	}
	share := func(i int) []*destination { return dests[i*len(dests)/m.shares() : (i+1)*len(dests)/m.shares()] }
	m.own = share(0)
	m.sender.turn.setBits(m.sender.bits * float64(len(m.own)))
	for i, h := range m.helpers {
		h.train, h.dests, h.busy = t, share(i+1), 0
		h.bits = m.sender.bits * float64(len(h.dests))
	}
}

// shares returns into how many shares the destinations are divided.
func (m *team) shares() int { return 1 + len(m.helpers) }

// divide makes or ends helpers so that there is the right number of shares for n destinations.
func (m *team) divide(n int) {
	is := m.shares()
	need := min(max(int(math.Ceil(m.load/shareTime)), 1), n, m.threads.most)
	switch {
	case need > is:
		m.calm = 0
	case n < is:
		need = max(n, 1)
	case m.load < 0.8*shareTime*float64(is-1):
		if m.calm++; m.calm < calmTrains {
			return
		}
		need, m.calm = is-1, 0
	default:
		m.calm = 0
		return
	}
	for m.shares() < need {
		h := &helper{team: m}
		h.turn.apart = []*turn{&m.sender.turn}
		for _, o := range m.helpers {
			h.turn.apart = append(h.turn.apart, &o.turn)
		}
		m.threads.startTurn(&h.turn, m.sender.bits*float64(n)/float64(need), h.run)
		m.helpers = append(m.helpers, h)
	}
	m.retired = running(m.retired)
	for _, h := range m.helpers[need-1:] {
		h.end()
		m.retired = append(m.retired, h)
	}
	m.helpers = m.helpers[:need-1]
	m.sender.turn.apart = nil
	for _, h := range m.helpers {
		m.sender.turn.apart = append(m.sender.turn.apart, &h.turn)
	}
}

// push sends packets before to, as destination.push does, and makes the helpers do the same. Because waking a thread
// costs more than sending a burst, they get several bursts at once, as many as may follow each other without a pause.
func (m *team) push(t *train, to int, departure time.Duration, early bool) {
	if len(m.helpers) > 0 {
		m.bursts[m.made] = burst{to, departure, m.sender.pacer.interval, early}
		if m.made++; m.made-m.given >= m.group || to == t.Len() {
			m.give()
		}
	}
	began := m.sender.pacer.now()
	for _, d := range m.own {
		d.push(t, to, departure)
	}
	m.busy += m.sender.pacer.now() - began
}

// give gives the helpers the bursts that they have not got yet.
func (m *team) give() {
	if m.made == m.given {
		return
	}
	m.given = m.made
	for _, h := range m.helpers {
		h.want.Store(m.number<<32 | uint64(m.given))
		h.turn.wake()
	}
}

// await waits until the helpers have sent all bursts.
func (m *team) await() {
	m.give()
	m.waits.Store(true)
	busy := m.busy
	for _, h := range m.helpers {
		for h.sent.Load() != h.want.Load() {
			m.sender.turn.wait()
		}
		busy += h.busy
	}
	m.waits.Store(false)
	if m.sender.period == 0 {
		return
	}
	was := m.load
	m.load += loadWeight * (busy.Seconds()/m.sender.period.Seconds() - m.load)
	total, n := m.threads.addLoad(m.load-was), len(*m.sender.dests.Load())
	if n > 1 && total > machineTime*float64(m.threads.most) && time.Since(m.logged) > logEvery {
		m.logged = time.Now()
		m.sender.config.Logger.Warn("rtp: the processors have too little time for all streams and their destinations: frames may be lost",
			"destinations", n, "processors_needed", math.Ceil(10*total)/10, "processors", m.threads.most)
	}
}

// run sends what the team gives the helper, until its turn moves or end is called. Other turns of the thread continue
// between bursts.
func (h *helper) run() {
	clock := monotonic.NewClock()
	for !h.turn.moves() && !h.ended.Load() {
		sent := h.sent.Load()
		if h.want.Load() == sent {
			h.turn.wait()
			continue
		}
		if number := h.team.number << 32; sent < number {
			sent = number
			h.turn.setBits(h.bits)
		}
		b := &h.team.bursts[uint32(sent)]
		h.turn.until(h.schedule(b, clock.Now()))
		began := clock.Now()
		for _, d := range h.dests {
			d.push(h.train, b.to, b.departure)
		}
		h.busy += clock.Now() - began
		if h.sent.Store(sent + 1); h.team.waits.Load() {
			h.team.sender.turn.wake()
		}
	}
}

// schedule returns when a burst is to be sent: when the sender's turn sent it or, in a helper that is behind, as pacer
// would schedule it.
func (h *helper) schedule(b *burst, now time.Duration) time.Duration {
	if b.early || b.interval == 0 {
		return now
	}
	h.due = max(b.departure, h.due+b.interval/2, now-maxBehind/2*b.interval)
	return h.due
}

// end makes the helper end, which must have sent everything.
func (h *helper) end() {
	h.ended.Store(true)
	h.turn.wake()
}

// running returns the helpers of a list that have not ended yet.
func running(list []*helper) (left []*helper) {
	for _, h := range list {
		select {
		case <-h.turn.ended:
		default:
			left = append(left, h)
		}
	}
	return left
}

// end ends the helpers. The sender's turn must have ended.
func (m *team) end() {
	for _, h := range m.helpers {
		h.end()
	}
	for _, h := range append(m.helpers, m.retired...) {
		<-h.turn.ended // ends: it has nothing to send
	}
	m.helpers, m.retired = nil, nil
	m.threads.addLoad(-m.load)
	m.load = 0
}
