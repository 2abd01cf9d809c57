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

	"github.com/tegracast/tegracast/pipeline/monotonic"
)

// Threads is a pool of threads shared by the streams of a process, with at most one thread per processor. A thread
// sends the bursts of its streams that are due, one after another, and sleeps until the next burst is due or a stream
// is woken. The more bursts a thread has the less often it sleeps; sleeping accounts for a quarter of the cost of
// sending.
type Threads struct {
	most int

	mu   sync.Mutex
	list []*thread
	load float64 // processors that sending takes
}

// NewThreads returns a pool for the given number of processors. Threads run only while there are streams.
func NewThreads(processors int) *Threads { return &Threads{most: processors} }

// ProcessorBits is the number of bits per second that one processor can be expected to send. It is an estimate for a
// board; fast processors send several times as many.
const ProcessorBits = 9e9

const (
	// Part of its time that a thread may be busy before streams move to another one: frames that come at the same time wait
	// for each other long before no time is left.
	threadTime = 0.5

	idleThread  = 0.1 // part of its time below which a thread that was too busy may get streams again
	worthMoving = 0.1 // part of a thread's time that moving a stream must save

	unclearReviews = 2 // the first may end before a stream has arrived, the second is partly without it

	fullThread  = threadTime * ProcessorBits // bits per second assigned to a thread while more threads may be started
	reviewEvery = 250 * time.Millisecond     // interval at which a thread checks its load
)

// A thread runs the turns of its streams.
type thread struct {
	threads *Threads

	bits    float64 // bits per second of its streams; guarded by threads.mu, like the next four fields
	streams int     // streams on this thread or moving to it
	load    float64 // part of its time for which it was busy, by its last review
	unclear int     // reviews until its load is that of its streams: some have just moved
	full    bool    // was too busy, and not idle since; gets further streams only if no thread can be started

	mu    sync.Mutex
	fresh []*turn // turns that have not yet begun on this thread

	turns  []*turn       // used only by the thread itself, like the following fields except asleep
	asleep atomic.Uint32 // futex(2): 1 while the thread sleeps
	clock  monotonic.Clock
	since  time.Duration // time of the last review
	slept  time.Duration // time slept since then
}

// A turn is a stream's share of a thread: a coroutine that yields the thread whenever it waits.
type turn struct {
	thread atomic.Pointer[thread]
	bits   float64       // bit rate of the stream in bits per second, to all destinations; 0 if unknown
	apart  []*turn       // on whose threads it should not be
	send   func()        // returns when moves returns true, or when the stream has ended
	to     *thread       // thread to which the stream is to move; nil if it stays
	due    time.Duration // when it continues, by the monotonic clock
	listen bool          // it also continues when woken
	woken  atomic.Bool
	yield  func(struct{}) bool
	next   func() (struct{}, bool)
	ended  chan struct{}
}

const never = time.Duration(math.MaxInt64)

// startTurn runs send in a turn, for a stream of the given bits per second. t.ended is closed when the turn has ended.
func (s *Threads) startTurn(t *turn, bits float64, send func()) {
	t.bits, t.send, t.ended = bits, send, make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.choose(t)
	l.countTurn(t)
	l.join(t)
}

// setBits changes the stream's bits per second, unless it is about to move. Only the turn itself may call it.
func (t *turn) setBits(bits float64) {
	l := t.thread.Load()
	if bits == t.bits || l == nil {
		return
	}
	l.threads.mu.Lock()
	defer l.threads.mu.Unlock()
	if !t.moves() {
		l.bits += bits - t.bits
		t.bits = bits
	}
}

// choose returns the thread for a stream: of the threads with enough room the one with most bits; otherwise a new one
// if possible; otherwise the one with the fewest bits, full threads last. The caller must hold mu.
func (s *Threads) choose(t *turn) *thread {
	var best *thread
	for _, l := range s.list {
		if !t.isApart(l) && !l.full && l.bits+t.bits <= fullThread && (best == nil || l.bits > best.bits) {
			best = l
		}
	}
	switch {
	case best != nil:
		return best
	case len(s.list) < s.most:
		l := &thread{threads: s, clock: monotonic.NewClock()}
		l.since = l.clock.Now()
		s.list = append(s.list, l)
		go ownThread(l.run)
		return l
	}
	return slices.MinFunc(s.list, func(a, b *thread) int {
		return cmp.Or(order(t.isApart(a), t.isApart(b)), order(a.full, b.full), cmp.Compare(a.bits, b.bits))
	})
}

// isApart reports whether the stream should not be on l.
func (t *turn) isApart(l *thread) bool {
	return slices.ContainsFunc(t.apart, func(o *turn) bool { return o.thread.Load() == l })
}

// order compares two things of which the one that is worse comes last.
func order(worse, other bool) int {
	switch {
	case worse == other:
		return 0
	case worse:
		return 1
	}
	return -1
}

// addLoad adds to the number of processors that sending takes, and returns it.
func (s *Threads) addLoad(processors float64) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.load += processors
	return s.load
}

// relieve takes note of the load of l. If it is too busy, it marks l as full and moves half of its streams to threads that are
// not full, as long as there is one or a new one can be started; otherwise one stream to the thread that is least busy, if that
// makes up for the move. Only l itself may call it.
func (s *Threads) relieve(l *thread, load float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.load = load
	if load < idleThread {
		l.full = false
	}
	if slices.ContainsFunc(l.turns, (*turn).moves) { // a frame lasts longer than a review
		return
	}
	if l.unclear > 0 {
		l.unclear--
		return
	}
	if load <= threadTime || len(l.turns) < 2 {
		return
	}
	l.full = true
	left := len(l.turns) / 2
	for _, t := range l.turns[:left] {
		if to := s.choose(t); !to.full {
			l.give(t, to)
		}
	}
	if l.unclear == 0 { // none has moved
		s.level(l)
	}
}

// level moves the stream of l that evens out l and the thread that is least busy best, if there is one. The caller must hold mu.
func (s *Threads) level(l *thread) {
	best, to := l.load-worthMoving, (*thread)(nil)
	var moved *turn
	for _, t := range l.turns {
		for _, o := range s.list {
			busier := max(l.load-l.share(t), o.load+l.share(t)) // of the two, if t moves
			if o != l && o.unclear == 0 && !t.isApart(o) && busier < best {
				best, to, moved = busier, o, t
			}
		}
	}
	if to != nil {
		l.give(moved, to)
	}
}

// share returns the part of the load of l that t is likely to have. The caller must hold threads.mu.
func (l *thread) share(t *turn) float64 {
	if t.bits > 0 {
		return l.load * t.bits / l.bits
	}
	return l.load / float64(l.streams)
}

// give makes t continue on another thread. The caller must hold threads.mu.
func (l *thread) give(t *turn, to *thread) {
	l.unclear, to.unclear = unclearReviews, unclearReviews
	to.countTurn(t)
	t.move(to)
}

// run continues turns when they are due, until there are none.
func (l *thread) run() {
	for l.accept() {
		now := l.clock.Now()
		l.review(now)
		t, due := l.first()
		if due-now > earlyEnough {
			l.sleep(due)
			l.slept += l.clock.Now() - now
			continue
		}
		if t.listen {
			t.woken.Store(false)
		}
		if _, more := t.next(); !more {
			l.removeTurn(t)
		}
	}
}

// review looks every reviewEvery at how busy the thread was.
func (l *thread) review(now time.Duration) {
	took := now - l.since
	if took < reviewEvery {
		return
	}
	l.threads.relieve(l, float64(took-l.slept)/float64(took))
	l.since, l.slept = now, 0
}

// first returns the turn that is due first, or nil. A woken turn comes first, because it has something to send.
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

// countTurn counts t as a stream of the thread. The caller must hold threads.mu.
func (l *thread) countTurn(t *turn) {
	l.streams++
	l.bits += t.bits
}

// join hands t, which countTurn has counted, over to the thread, where it begins or continues.
func (l *thread) join(t *turn) {
	t.thread.Store(l)
	l.mu.Lock()
	l.fresh = append(l.fresh, t)
	l.mu.Unlock()
	l.rouse()
}

// accept begins the turns that have joined. It returns false if the thread has no streams and must end.
func (l *thread) accept() bool {
	l.mu.Lock()
	fresh := l.fresh
	l.fresh = nil
	l.mu.Unlock()
	for _, t := range fresh { // a coroutine is bound to the thread that creates it
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

// removeTurn removes a turn that has ended or moves to another thread.
func (l *thread) removeTurn(t *turn) {
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

// quiet reports whether no turn was woken and none has joined.
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

// roused reports whether the turn was woken while it listens for that, and so should continue before it is due.
func (t *turn) roused() bool { return t.listen && t.woken.Load() }

// until waits until the given time of the monotonic clock.
func (t *turn) until(at time.Duration) {
	t.due, t.listen = at, false
	t.yield(struct{}{})
}

// wait waits until wake is called, or continues at once if wake was called since the previous wait ended. Callers must
// check their condition after each wait.
func (t *turn) wait() {
	t.due, t.listen = never, true
	t.yield(struct{}{})
}

// wake makes the turn continue from wait. It may be called at any time by any goroutine, and does not block.
func (t *turn) wake() {
	t.woken.Store(true)
	if l := t.thread.Load(); l != nil {
		l.rouse()
	}
}

// move makes the stream continue on another thread, between two frames.
func (t *turn) move(to *thread) {
	t.to = to
	t.wake()
}

// moves reports whether send should return between two frames.
func (t *turn) moves() bool { return t.to != nil }
