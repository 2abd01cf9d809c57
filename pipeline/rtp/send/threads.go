// SPDX-License-Identifier: Apache-2.0

package send

import (
	"cmp"
	"iter"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Threads are the threads that the streams of a process share, not more than one for each processor. A thread sends what is due
// of its streams, one burst after the other, and sleeps until the next burst is due or a stream is woken. The more bursts it has
// the less often it sleeps, so streams share a thread as long as it is not busy for half of its time.
type Threads struct {
	most int

	mu   sync.Mutex
	list []*thread // but those that end
}

const (
	reviewEvery = time.Second
	roomUpTo    = 0.5 // of its time a thread may be busy with the streams that it is given
	tooBusy     = 0.8 // of its time: a thread gives a stream away
)

// NewThreads makes threads for as many processors as Go uses. They run while there are streams.
func NewThreads() *Threads { return &Threads{most: runtime.GOMAXPROCS(0)} }

// A thread has turns.
type thread struct {
	threads *Threads
	busy    float64 // part of its time; 1: not known. Guarded by threads.mu
	streams int     // the same

	mu    sync.Mutex
	fresh []*turn // that have not begun here

	turns  []*turn       // of the thread alone
	asleep atomic.Uint32 // futex(2): 1 while the thread sleeps
	clock  clock
	since  time.Duration // when it was reviewed
	slept  time.Duration // since then
}

// A turn is a stream's share of a thread: a coroutine, which gives the thread away whenever it waits.
type turn struct {
	thread atomic.Pointer[thread]
	send   func()        // which returns when move says so, or it has ended
	to     *thread       // to which the stream is to move; nil: it stays
	due    time.Duration // when it goes on, by the monotonic clock
	listen bool          // it also goes on when it is woken
	woken  atomic.Bool
	yield  func(struct{}) bool
	next   func() (struct{}, bool)
	ended  chan struct{}
}

const never = time.Duration(math.MaxInt64)

// begin runs send in a turn. The turn has ended when ended is closed.
func (s *Threads) begin(t *turn, send func()) {
	t.send, t.ended = send, make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.place(t)
}

// place gives t to a thread. mu is held.
func (s *Threads) place(t *turn) {
	l := s.spare()
	l.busy = 1
	l.join(t)
}

// spare is a new thread, or the least busy one when there is one for each processor. mu is held.
func (s *Threads) spare() *thread {
	if len(s.list) == s.most {
		return slices.MinFunc(s.list, func(a, b *thread) int {
			return cmp.Or(cmp.Compare(a.busy, b.busy), cmp.Compare(a.streams, b.streams))
		})
	}
	l := &thread{threads: s, busy: 1, clock: newClock()}
	l.since = l.clock.now()
	s.list = append(s.list, l)
	go l.run()
	return l
}

// balance has streams of l move when it is too busy, or when another thread has room for all of them.
func (s *Threads) balance(l *thread, busy float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.list, l)
	if l.busy = busy; i < 0 {
		return
	}
	if busy > tooBusy && len(l.turns) > 1 {
		if to := s.spare(); to != l {
			l.turns[0].move(to)
		}
		return
	}
	var room *thread
	for _, o := range s.list {
		if o != l && o.busy+busy < roomUpTo && (room == nil || o.busy > room.busy) {
			room = o
		}
	}
	if room == nil {
		return
	}
	room.busy += busy
	s.list = slices.Delete(s.list, i, i+1)
	for _, t := range l.turns {
		t.move(room)
	}
}

// run has the turns go on when they are due, until there are none.
func (l *thread) run() {
	ownThread()
	for l.accept() {
		now := l.clock.now()
		l.review(now)
		t, due := l.first(now)
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

// review notes how busy the thread was.
func (l *thread) review(now time.Duration) {
	took := now - l.since
	if took < reviewEvery {
		return
	}
	busy := 1 - float64(l.slept)/float64(took)
	l.since, l.slept = now, 0
	l.threads.balance(l, busy)
}

// first is the turn that is due first, seen at now.
func (l *thread) first(now time.Duration) (first *turn, due time.Duration) {
	due = never
	for _, t := range l.turns {
		at := t.due
		if at > now && t.roused() {
			at = now
		}
		if first == nil || at < due {
			first, due = t, at
		}
	}
	return first, due
}

// join has t begin on the thread, or go on there. threads.mu is held.
func (l *thread) join(t *turn) {
	t.thread.Store(l)
	l.streams++
	l.mu.Lock()
	l.fresh = append(l.fresh, t)
	l.mu.Unlock()
	l.rouse()
}

// accept takes the turns that have joined. It returns false when the thread has none, and ends.
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
	s := l.threads
	s.mu.Lock()
	defer s.mu.Unlock()
	l.streams--
	switch {
	case t.to == nil:
		close(t.ended)
	case slices.Contains(s.list, t.to):
		t.to.join(t)
	default: // it has ended meanwhile
		s.place(t)
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
