// SPDX-License-Identifier: Apache-2.0

package send

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Threads are the threads that the streams of a process share, not more than one for each processor. A thread sends what is due
// of its streams, one burst after the other, and sleeps until the next burst is due or a stream is woken. The more bursts it has
// the less often it sleeps, which is a quarter of what sending costs.
type Threads struct {
	most int

	mu   sync.Mutex
	list []*thread
}

// NewThreads makes threads for so many processors. They run while there are streams.
func NewThreads(processors int) *Threads { return &Threads{most: processors} }

const (
	fullThread  = 9e9                    // bits a second that a thread is given, while there are processors without one
	tooBusy     = 0.8                    // part of its time: a thread gives streams away
	reviewEvery = 250 * time.Millisecond // so often it looks whether it is
)

// A thread has turns.
type thread struct {
	threads *Threads

	bits    float64 // a second, of its streams. Guarded by threads.mu, as the next two
	streams int     // here, or on their way
	full    bool    // it was too busy once, so it gets no others

	mu    sync.Mutex
	fresh []*turn // that have not begun here

	turns  []*turn       // of the thread alone, as what follows
	asleep atomic.Uint32 // futex(2): 1 while the thread sleeps
	clock  clock
	since  time.Duration // the last review
	slept  time.Duration // since then
}

// A turn is a stream's share of a thread: a coroutine, which gives the thread away whenever it waits.
type turn struct {
	thread atomic.Pointer[thread]
	bits   float64       // a second, of the stream
	send   func()        // which returns when moves says so, or it has ended
	to     *thread       // to which the stream is to move; nil: it stays
	due    time.Duration // when it goes on, by the monotonic clock
	listen bool          // it also goes on when it is woken
	woken  atomic.Bool
	yield  func(struct{}) bool
	next   func() (struct{}, bool)
	ended  chan struct{}
}

const never = time.Duration(math.MaxInt64)

// begin runs send in a turn, for a stream of so many bits a second. The turn has ended when ended is closed.
func (s *Threads) begin(t *turn, bits float64, send func()) {
	t.bits, t.send, t.ended = bits, send, make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.choose(bits)
	l.take(t)
	l.join(t)
}

// choose returns the thread for a stream: the one with most to send that has room, else a new one, else the one with least.
// mu is held.
func (s *Threads) choose(bits float64) *thread {
	var best *thread
	for _, l := range s.list {
		if !l.full && l.bits+bits <= fullThread && (best == nil || l.bits > best.bits) {
			best = l
		}
	}
	switch {
	case best != nil:
		return best
	case len(s.list) < s.most:
		l := &thread{threads: s, clock: newClock()}
		l.since = l.clock.now()
		s.list = append(s.list, l)
		go ownThread(l.run)
		return l
	}
	return slices.MinFunc(s.list, func(a, b *thread) int {
		switch {
		case a.full == b.full:
			return cmp.Compare(a.bits, b.bits)
		case a.full:
			return 1
		}
		return -1
	})
}

// relieve has half of the streams of l move to a thread that is not too busy, if there may be one.
func (s *Threads) relieve(l *thread) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.full = true
	for _, t := range l.turns[:len(l.turns)/2] {
		if t.moves() { // it has been told before
			continue
		}
		to := s.choose(t.bits)
		if to.full {
			return
		}
		to.take(t)
		t.move(to)
	}
}

// run has the turns go on when they are due, until there are none.
func (l *thread) run() {
	for l.accept() {
		now := l.clock.now()
		l.review(now)
		t, due := l.first()
		if due-now > earlyEnough {
			l.sleep(due)
			l.slept += l.clock.now() - now
			continue
		}
		if t.listen {
			t.woken.Store(false)
		}
		if _, more := t.next(); !more {
			l.end(t)
		}
	}
}

// review looks how busy the thread was.
func (l *thread) review(now time.Duration) {
	took := now - l.since
	if took < reviewEvery {
		return
	}
	if float64(took-l.slept) > tooBusy*float64(took) && len(l.turns) > 1 {
		l.threads.relieve(l)
	}
	l.since, l.slept = now, 0
}

// first is the turn that is due first, if the thread has one. Whoever is woken goes first: then it has something that is due.
func (l *thread) first() (first *turn, due time.Duration) {
	due = never
	for _, t := range l.turns {
		at := t.due
		if t.roused() {
			at = 0
		}
		if first == nil || at < due {
			first, due = t, at
		}
	}
	return first, due
}

// take counts t as a stream of the thread. threads.mu is held.
func (l *thread) take(t *turn) {
	l.streams++
	l.bits += t.bits
}

// join has t, which the thread has taken, begin there, or go on.
func (l *thread) join(t *turn) {
	t.thread.Store(l)
	l.mu.Lock()
	l.fresh = append(l.fresh, t)
	l.mu.Unlock()
	l.rouse()
}

// accept has the turns begin that have joined. It returns false when the thread has no stream, and ends.
func (l *thread) accept() bool {
	l.mu.Lock()
	fresh := l.fresh
	l.fresh = nil
	l.mu.Unlock()
	for _, t := range fresh { // a coroutine is bound to the thread that makes it
		t.due, t.listen, t.to = 0, false, nil
		t.next, _ = iter.Pull(func(yield func(struct{}) bool) {
			t.yield = yield
			t.send()
		})
		l.turns = append(l.turns, t)
	}
	if len(l.turns) > 0 {
		return true
	}
	l.threads.mu.Lock()
	defer l.threads.mu.Unlock()
	if l.streams > 0 {
		return true
	}
	l.threads.list = slices.DeleteFunc(l.threads.list, func(o *thread) bool { return o == l })
	return false
}

// end takes off a turn that has ended, or goes on elsewhere.
func (l *thread) end(t *turn) {
	l.turns = slices.DeleteFunc(l.turns, func(o *turn) bool { return o == t })
	l.threads.mu.Lock()
	l.streams--
	l.bits -= t.bits
	l.threads.mu.Unlock()
	if t.to != nil {
		t.to.join(t)
	} else {
		close(t.ended)
	}
}

// sleep blocks the thread until t, or until it is roused.
func (l *thread) sleep(t time.Duration) {
	l.asleep.Store(1)
	if l.quiet() {
		futexWait(&l.asleep, 1, t)
	}
	l.asleep.Store(0)
}

// quiet says that nobody has been woken, and nobody has come.
func (l *thread) quiet() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.fresh) == 0 && !slices.ContainsFunc(l.turns, (*turn).roused)
}

// rouse ends sleep.
func (l *thread) rouse() {
	if l.asleep.Swap(0) == 1 {
		futexWake(&l.asleep)
	}
}

// roused says whether the turn is to go on because it was woken.
func (t *turn) roused() bool { return t.listen && t.woken.Load() }

// until waits until a moment.
func (t *turn) until(at time.Duration) {
	t.due, t.listen = at, false
	t.yield(struct{}{})
}

// wait waits until wake is called, or has been since the last wait: whoever waits for something looks then whether it is so.
func (t *turn) wait() {
	t.due, t.listen = never, true
	t.yield(struct{}{})
}

// wake has the turn go on from wait. It may be called by anybody, at any time, and waits for nothing.
func (t *turn) wake() {
	t.woken.Store(true)
	if l := t.thread.Load(); l != nil {
		l.rouse()
	}
}

// move has the stream go on on another thread, when it is between two frames.
func (t *turn) move(to *thread) {
	t.to = to
	t.wake()
}

// moves says whether send is to return between two frames.
func (t *turn) moves() bool { return t.to != nil }
