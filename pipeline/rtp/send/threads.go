// SPDX-License-Identifier: Apache-2.0

package send

import (
	"iter"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Threads are the threads that the streams of a process share, not more than one for each processor. A thread sends what is due
// of its streams, one burst after the other, and sleeps until the next burst is due or a stream is woken.
type Threads struct {
	most int

	mu   sync.Mutex
	list []*thread
}

// NewThreads makes threads for as many processors as Go uses. They run while there are streams.
func NewThreads() *Threads { return &Threads{most: runtime.GOMAXPROCS(0)} }

// A thread has turns.
type thread struct {
	threads *Threads
	bits    float64 // a second, of all its streams; guarded by threads.mu

	mu    sync.Mutex
	fresh []*turn // that have not begun

	turns  []*turn       // of the thread alone
	asleep atomic.Uint32 // futex(2): 1 while the thread sleeps
	clock  clock
}

// A turn is a stream's share of a thread: a coroutine, which gives the thread away whenever it waits.
type turn struct {
	thread *thread
	due    time.Duration // when it goes on, by the monotonic clock
	listen bool          // it also goes on when it is woken
	woken  atomic.Bool
	yield  func(struct{}) bool
	next   func() (struct{}, bool)
	bits   float64
	ended  chan struct{}
}

const never = time.Duration(math.MaxInt64)

// begin runs send in a turn, for a stream of so many bits a second. The turn has ended when ended is closed.
func (s *Threads) begin(t *turn, bits float64, send func()) {
	t.bits, t.ended, t.due = bits, make(chan struct{}), 0
	t.next = func() (struct{}, bool) {
		// A coroutine is bound to the thread that makes it.
		t.next, _ = iter.Pull(func(yield func(struct{}) bool) {
			t.yield = yield
			send()
		})
		return t.next()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.thread = s.choose(bits)
	t.thread.bits += bits
	t.thread.mu.Lock()
	t.thread.fresh = append(t.thread.fresh, t)
	t.thread.mu.Unlock()
	t.thread.rouse()
}

// fullThread is how many bits a second a thread sends while other processors have none to send: to copy them takes a third of
// its time.
var fullThread = func() float64 {
	f, err := strconv.ParseFloat(os.Getenv("TG_FULL"), 64)
	if err != nil {
		return 4e9
	}
	return f
}()

// choose returns the thread for a stream: the busiest one that has room, else a new one, else the least busy.
func (s *Threads) choose(bits float64) *thread {
	var best *thread
	for _, l := range s.list {
		if l.bits+bits <= fullThread && (best == nil || l.bits > best.bits) {
			best = l
		}
	}
	switch {
	case best != nil:
	case len(s.list) < s.most:
		best = &thread{threads: s, clock: newClock()}
		s.list = append(s.list, best)
		go best.run()
	default:
		best = slices.MinFunc(s.list, func(a, b *thread) int { return int(math.Copysign(1, a.bits-b.bits)) })
	}
	return best
}

// run has the turns go on when they are due, until there are none.
func (l *thread) run() {
	ownThread()
	for l.accept() {
		now := l.clock.now()
		t, due := l.first(now)
		if due-now > earlyEnough {
			l.sleep(due)
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

// accept takes the turns that are to begin. It returns false when the thread has none, and ends.
func (l *thread) accept() bool {
	l.mu.Lock()
	l.turns = append(l.turns, l.fresh...)
	l.fresh = l.fresh[:0]
	l.mu.Unlock()
	if len(l.turns) > 0 {
		return true
	}
	l.threads.mu.Lock()
	defer l.threads.mu.Unlock()
	if len(l.fresh) > 0 { // begin has threads.mu
		return true
	}
	l.threads.list = slices.DeleteFunc(l.threads.list, func(o *thread) bool { return o == l })
	return false
}

// end takes off a turn that has ended.
func (l *thread) end(t *turn) {
	l.turns = slices.DeleteFunc(l.turns, func(o *turn) bool { return o == t })
	l.threads.mu.Lock()
	l.bits -= t.bits
	l.threads.mu.Unlock()
	close(t.ended)
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
	if t.thread != nil {
		t.thread.rouse()
	}
}

const (
	futexWaitBitset = 9 | 128 // private, until a moment of the monotonic clock (futex(2))
	futexWakeOne    = 1 | 128
	futexAnyBit     = 0xffffffff
)

// futexWait blocks the thread while *word is value, until t or futexWake.
func futexWait(word *atomic.Uint32, value uint32, t time.Duration) {
	var until *unix.Timespec
	if t != never {
		ts := unix.NsecToTimespec(int64(t))
		until = &ts
	}
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWaitBitset, uintptr(value),
		uintptr(unsafe.Pointer(until)), 0, futexAnyBit)
}

// futexWake wakes the thread that waits for word.
func futexWake(word *atomic.Uint32) {
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWakeOne, 1, 0, 0, 0)
}

// ownThread gives the calling goroutine a thread of its own that the scheduler wakes before busy ones, as far as the
// process may ask for that (CAP_SYS_NICE or LimitNICE). The thread ends with the goroutine.
func ownThread() {
	runtime.LockOSThread()
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, senderNice) // 0 is the calling thread
	_ = os.WriteFile("/proc/thread-self/comm", []byte(senderName), 0)
}

// senderName is what top and the like call the thread.
const senderName = "rtp-sender"

// senderNice is better than everything that computes, and worse than what the kernel needs.
const senderNice = -10
