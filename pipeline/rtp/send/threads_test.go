// SPDX-License-Identifier: Apache-2.0

package send

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/monotonic"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// The turn that is due first continues first, on one thread, which never waits for a turn. A wake-up is not lost, and
// does not end until. The test is repeated if the machine stands still for as long as the longest wait.
func TestTurnsTakeTurns(t *testing.T) {
	want := []string{"d", "b", "c", "c", "b", "a"}
	rtptest.Need(t, rtptest.Tries(t, func() error {
		if got := takeTurns(t); !slices.Equal(got, want) {
			return fmt.Errorf("turns go on in the order %q, want %q", got, want)
		}
		return nil
	}))
}

// Sender threads have a name of their own, and the process's first thread keeps its name, even if all idle threads
// become senders.
func TestSendersLeaveTheFirstThread(t *testing.T) {
	const most = 64
	tids, over := make(chan int, most), make(chan struct{})
	defer close(over)
	for range most {
		go ownThread(func() {
			tids <- unix.Gettid()
			<-over
		})
	}
	for range most {
		tid := <-tids
		name, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/comm", tid))
		if err != nil || string(name) != senderName+"\n" || tid == os.Getpid() {
			t.Errorf("thread %d of process %d: %q %v", tid, os.Getpid(), name, err)
		}
	}
}

// takeTurns plays four turns, and returns the order in which they continued.
func takeTurns(t *testing.T) (order []string) {
	const longest = 500
	s := &Threads{most: 1}
	var turns [4]turn
	start := monotonic.Now() + 20*time.Millisecond
	play := func(t *turn, name string, moments ...time.Duration) {
		s.startTurn(t, 0, func() {
			for _, at := range moments {
				t.wake()
				t.until(start + at*time.Millisecond)
				order = append(order, name)
				switch now := monotonic.Now(); {
				case now < start+at*time.Millisecond-earlyEnough:
					order = append(order, "too early")
				case at < longest && now > start+longest*time.Millisecond:
					order = append(order, "too late")
				}
			}
		})
	}
	play(&turns[0], "a", longest)
	play(&turns[1], "b", 0, 30)
	play(&turns[2], "c", 10, 20)
	turns[3].wake()
	s.startTurn(&turns[3], 0, func() {
		turns[3].wait()
		order = append(order, "d")
	})
	s.mu.Lock()
	if len(s.list) != 1 {
		t.Errorf("%d threads", len(s.list))
	}
	s.mu.Unlock()
	for i := range turns {
		<-turns[i].ended
	}
	return order
}

// TestStreamsChooseThreads starts streams with the given numbers of Gb/s one after another, and checks which threads
// they use.
func TestStreamsChooseThreads(t *testing.T) {
	for name, tt := range map[string]struct {
		most  int
		gbits []float64
		want  []int
	}{
		"together":            {4, []float64{1, 1, 1, 1, 1}, []int{0, 0, 0, 0, 1}},
		"large ones":          {4, []float64{8, 4, 4, 0.5}, []int{0, 1, 2, 1}},
		"the fullest":         {4, []float64{3, 4, 1, 0.5}, []int{0, 1, 0, 0}},
		"more than there are": {2, []float64{4, 3.5, 1.5, 1.5, 0.5}, []int{0, 1, 1, 0, 1}},
		"one processor":       {1, []float64{4, 4, 4}, []int{0, 0, 0}},
	} {
		s := &Threads{most: tt.most}
		var turns []*turn
		var got []int
		for range tt.gbits {
			turns = append(turns, &turn{})
		}
		rest := make(chan struct{})
		for i, x := range turns {
			s.startTurn(x, 1e9*tt.gbits[i], func() { rests(x, rest) })
			got = append(got, slices.Index(s.list, x.thread.Load()))
		}
		close(rest)
		for _, x := range turns {
			x.wake()
			<-x.ended
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: threads %v, want %v", name, got, tt.want)
		}
	}
}

// rests waits in the turn until rest is closed, or the stream moves.
func rests(t *turn, rest chan struct{}) {
	for !t.moves() {
		select {
		case <-rest:
			return
		default:
			t.wait()
		}
	}
}

// A thread that is too busy gives away half of its streams, which continue on another thread, but not to a thread that
// was too busy itself.
func TestABusyThreadGivesStreamsAway(t *testing.T) {
	for most, want := range map[int][]int{1: {3}, 2: {2, 1}, 8: {2, 1}} {
		s := &Threads{most: most}
		rest, relieved := make(chan struct{}), make(chan struct{})
		var turns [3]turn
		for i := range turns {
			x := &turns[i]
			s.startTurn(x, 1, func() {
				if i == 2 { // all have joined
					s.relieve(x.thread.Load(), 1)
					s.relieve(x.thread.Load(), 1) // still too busy, before they have moved
					close(relieved)
				}
				rests(x, rest)
			})
		}
		<-relieved
		var got []int
		for begin := time.Now(); !slices.Equal(got, want) && time.Since(begin) < time.Minute; time.Sleep(time.Millisecond) {
			got = got[:0]
			s.mu.Lock()
			for _, l := range s.list {
				if got = append(got, l.streams); !l.full && l.bits != float64(l.streams) {
					t.Errorf("%d streams of a bit a second count as %v", l.streams, l.bits)
				}
			}
			s.mu.Unlock()
		}
		for i := range turns {
			if l := turns[i].thread.Load(); (l == turns[2].thread.Load()) == (len(want) == 2 && i == 0) {
				t.Errorf("%v: stream %d is on the wrong thread", want, i)
			}
		}
		close(rest)
		for i := range turns {
			turns[i].wake()
			<-turns[i].ended
		}
		if !slices.Equal(got, want) {
			t.Errorf("streams of the threads %v, want %v", got, want)
		}
	}
}

// stopped returns threads with so many streams of a bit a second each, which do not run.
func stopped(streams ...int) (s *Threads) {
	s = &Threads{most: len(streams)}
	for _, n := range streams {
		l := &thread{threads: s}
		for range n {
			t := &turn{bits: 1}
			t.thread.Store(l)
			l.countTurn(t)
			l.turns = append(l.turns, t)
		}
		s.list = append(s.list, l)
	}
	return s
}

// TestAThreadKeepsHalfOfItsTime lets threads be busy for parts of their time, and checks which are full after that.
func TestAThreadKeepsHalfOfItsTime(t *testing.T) {
	l := stopped(2).list[0]
	for _, step := range []struct {
		busy float64
		full bool
	}{{0.45, false}, {0.55, true}, {0.2, true}, {0.05, false}} {
		l.since, l.slept = 0, time.Duration((1-step.busy)*float64(reviewEvery))
		if l.review(reviewEvery); l.full != step.full {
			t.Errorf("%.0f %% busy: full: %v", 100*step.busy, l.full)
		}
	}
}

// TestAStreamMovesOnce checks that a thread that is still too busy does not give away again what has not left it yet, as a frame
// lasts longer than some reviews: a thread that counts a stream that never comes would never end.
func TestAStreamMovesOnce(t *testing.T) {
	s := stopped(4, 1)
	for range unclearReviews + 3 {
		s.relieve(s.list[0], 0.9)
	}
	for i, want := range []int{4, 3} { // each counts the two that are on their way
		if got := s.list[i].streams; got != want {
			t.Errorf("thread %d counts %d streams, want %d", i, got, want)
		}
	}
}

// Where all threads were too busy, one that is much busier than another gives it a stream. Streams have loads of their own here
// and move at once; after some reviews none moves any more.
func TestFullThreadsLevel(t *testing.T) {
	for _, tt := range []struct {
		loads [][]float64 // of streams, by thread
		moves int
		want  []float64 // of threads
	}{
		{[][]float64{{0.24, 0.24, 0.24, 0.24}, {0.1}}, 2, []float64{0.48, 0.58}},
		{[][]float64{{0.3, 0.3, 0.3}, {0.3, 0.3}}, 0, []float64{0.9, 0.6}}, // the other would be as busy as the first is
		{[][]float64{{0.2, 0.2, 0.2}, {0.36}}, 0, []float64{0.6, 0.36}},    // nearly so
		{[][]float64{{0.3, 0.3, 0.3}, {0.3, 0.3, 0.3}, {0.3}}, 1, []float64{0.6, 0.9, 0.6}},
		{[][]float64{{1}, {0.1}}, 0, []float64{1, 0.1}}, // its only stream
	} {
		streams := []int{}
		for _, l := range tt.loads {
			streams = append(streams, len(l))
		}
		s, costs, moves := stopped(streams...), map[*turn]float64{}, 0
		load := func(l *thread) (sum float64) {
			for _, x := range l.turns {
				sum += costs[x]
			}
			return sum
		}
		for i, l := range s.list {
			l.full = true
			for k, x := range l.turns {
				costs[x] = tt.loads[i][k]
			}
			l.load = load(l)
		}
		for range 20 {
			for _, l := range s.list {
				s.relieve(l, load(l))
			}
			for _, l := range s.list {
				for _, x := range slices.Clone(l.turns) {
					if to := x.to; to != nil {
						moves++
						l.removeTurn(x)
						to.turns, to.fresh, x.to = append(to.turns, x), nil, nil
					}
				}
			}
		}
		for i, l := range s.list {
			if got := load(l); moves != tt.moves || got < tt.want[i]-1e-9 || got > tt.want[i]+1e-9 {
				t.Errorf("%v: thread %d has a load of %.2f after %d moves, want %.2f after %d", tt.loads, i, got, moves, tt.want[i], tt.moves)
			}
		}
	}
}

// beside streams frames to a healthy destination, on one thread with a stream whose destination accepts no data if
// stalled is true, and returns the median latency.
func beside(t *testing.T, frames, fps int, pacing Pacing, stalled bool) (time.Duration, error) {
	t.Helper()
	threads := &Threads{most: 1}
	f := rtptest.Format(t, pipeline.UYVY, 320, 240, fps)
	var sinks []*Sink
	for range 2 {
		_, addr := listener(t) // need not be read: packets that do not fit into its socket are lost there
		sinks = append(sinks, testSink(t, Config{Destinations: []string{addr}, Threads: threads, Pacing: pacing}, f))
	}
	if stalled {
		stall(t, (*sinks[1].sender.dests.Load())[0])
	}
	var books [2]pipeline.OutputStats
	var running sync.WaitGroup
	for i, s := range sinks {
		running.Go(func() {
			src := rtptest.NewSource(t, f, frames)
			close(src.Ready)
			books[i] = rtptest.Run(t, t.Context(), src, s)
		})
	}
	running.Wait()
	got := sinks[0].Stats().Destinations[0]
	if books[0].Delivered != uint64(frames) || got.Frames != uint64(frames) || got.Cut != 0 {
		return 0, fmt.Errorf("stalled %v: delivered %d of %d, %v, dropped %v", stalled, books[0].Delivered, frames, got, books[0].Dropped)
	}
	if st := sinks[1].Stats().Destinations[0]; stalled && st.Frames > 0 || !stalled && st.Cut > 0 {
		return 0, fmt.Errorf("the other stream, stalled %v: %v", stalled, st)
	}
	return books[0].Latency.P50, nil
}

// A stream whose only destination accepts no data waits for it as long as it may, but costs a stream on the same thread
// no frames and hardly any time. Other load on the machine slows down both, and then the test is repeated.
func TestAStalledStreamDelaysNobodyOnItsThread(t *testing.T) {
	const frames, fps = 60, 60
	for _, pacing := range []Pacing{PaceFrame, PaceBurst} {
		rtptest.Need(t, rtptest.Tries(t, func() error {
			alone, err := beside(t, frames, fps, pacing, false)
			if err != nil {
				return err
			}
			stalled, err := beside(t, frames, fps, pacing, true)
			if err == nil && stalled > alone+time.Second/fps/4 {
				err = fmt.Errorf("%s: median latency %v beside a stalled stream, %v beside a healthy one", pacing, stalled, alone)
			}
			return err
		}))
	}
}
