// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
)

// Policy determines which frame an output loses when it cannot keep up.
type Policy uint8

const (
	// Latest drops the oldest waiting frame in favour of the newest, for the least latency. It is the default.
	Latest Policy = iota
	// Block keeps the frames already accepted and rejects the new one, so that the accepted frames have no gaps. It is
	// meant for recording.
	Block
)

func (p Policy) String() string { return [...]string{"latest", "block"}[p] }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Policy) UnmarshalText(b []byte) error {
	switch string(b) {
	case "latest":
		*p = Latest
	case "block":
		*p = Block
	default:
		return fmt.Errorf("policy %q: must be latest or block", b)
	}
	return nil
}

// ErrDetached is returned by Queue.Next when no frames are left and none will come: the output was detached, or the
// part of the graph before it has ended.
var ErrDetached = errors.New("output is detached")

// DefaultDepth returns the default for the maximum number of frames of format f that may wait for an output: two, plus
// one for each 500 MB per second, rounded, but at most ten. The more bytes per second, the longer an output takes to
// catch up after a delay of the machine.
func DefaultDepth(f Format) int {
	const first, most, each = 2, 10, 500e6
	rate := float64(f.Rate.Num) / float64(max(f.Rate.Den, 1))
	return min(first+int(math.Round(float64(f.Size())*rate/each)), most)
}

// A Queue is the bounded queue in front of one output or stage. Its lock is held for a few instructions only, so that a
// slow consumer delays nobody else.
type Queue struct {
	policy  Policy
	account *Account

	log     *slog.Logger // nil: slog.Default()
	kind    string       // kind of consumer, for the log: output or stage
	failing atomic.Bool  // the previous frame failed
	resting atomic.Bool  // the consumer has failed: frames are dropped until resume; set with mu held

	mu     sync.Mutex
	ring   []*Frame
	head   int
	count  int
	closed bool
	wake   chan struct{}
	room   chan struct{} // signals awaitRoom that a frame was taken, or that the queue accepts none any more
	over   chan struct{} // closed by close
}

// NewQueue returns a queue with a depth of depth frames (at least 1) that counts into account.
func NewQueue(depth int, policy Policy, account *Account) *Queue {
	return &Queue{
		ring: make([]*Frame, max(depth, 1)), policy: policy, account: account, kind: "output",
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1), over: make(chan struct{}),
	}
}

// put takes over one lease of f, and counts f as offered. If the queue is closed or rests, it drops f; if the queue is
// full, it drops a frame according to the policy. It never blocks.
func (q *Queue) put(f *Frame) {
	q.account.offered.Add(1)
	var victim *Frame
	reason := DropQueue
	q.mu.Lock()
	switch {
	case q.closed || q.resting.Load():
		victim, reason = f, DropDetached
	case q.count < len(q.ring):
		q.push(f)
	case q.policy == Block:
		victim = f
	default:
		victim = q.pop()
		q.push(f)
	}
	q.mu.Unlock()
	if victim != nil {
		q.account.Drop(victim, reason)
		victim.Release()
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *Queue) push(f *Frame) {
	q.ring[(q.head+q.count)%len(q.ring)] = f
	q.count++
}

func (q *Queue) pop() *Frame {
	f := q.ring[q.head]
	q.ring[q.head] = nil
	q.head = (q.head + 1) % len(q.ring)
	q.count--
	q.tellRoom()
	return f
}

func (q *Queue) tellRoom() {
	select {
	case q.room <- struct{}{}:
	default:
	}
}

// awaitRoom waits until put would lose no frame, the queue is closed or rests, or ctx ends. It must be called only by
// the producer.
func (q *Queue) awaitRoom(ctx context.Context) {
	for {
		q.mu.Lock()
		there := q.closed || q.resting.Load() || q.count < len(q.ring)
		q.mu.Unlock()
		if there {
			return
		}
		select {
		case <-q.room:
		case <-ctx.Done():
			return
		}
	}
}

// Next waits for the next frame whose bytes are final and passes its lease to the caller, who must call Queue.Done or
// Queue.Fail with it. A frame that turns out to be damaged while it is filling, or whose fence reports an error, is
// counted as dropped and skipped. Next returns ErrDetached when the queue is closed and empty, or ctx.Err().
//
// A kernel that is then launched on the frame is launched after the completion of the frame's DMA was observed,
// whichever goroutine observed it, because q.mu orders the observation before the launch (GPUDirect RDMA 12.9 §11.7).
func (q *Queue) Next(ctx context.Context) (*Frame, error) {
	for {
		f, err := q.NextFilling(ctx)
		if err != nil {
			return nil, err
		}
		err = f.WaitWhole(ctx)
		switch {
		case err == nil:
			return f, nil
		case errors.Is(err, ErrDamaged):
			q.Fail(f, DropDamaged, nil) // the source has already logged the reason
		default:
			q.Fail(f, DropDetached, nil)
		}
	}
}

// NextFilling is Next for a consumer that reads frames up to their Lines: it also returns frames that are still
// filling. The caller must call Done with a frame that was complete in the end, and Fail with DropDamaged for one that
// was not.
func (q *Queue) NextFilling(ctx context.Context) (*Frame, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		q.mu.Lock()
		if q.count > 0 {
			f := q.pop()
			q.mu.Unlock()
			if f.Ready != nil {
				if err := f.Ready.Wait(ctx); err != nil {
					q.Fail(f, DropFence, nil) // the stage that made the frame has already logged the error
					continue
				}
			}
			return f, nil
		}
		closed := q.closed
		q.mu.Unlock()
		if closed {
			return nil, ErrDetached
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// DropLate drops all waiting frames but the newest, for a consumer that would rather skip frames than stay behind. It
// drops the newest frame too if more than the given number of its lines have arrived. A queue with policy Block drops
// none.
func (q *Queue) DropLate(most int) {
	q.mu.Lock()
	var late []*Frame
	for q.policy == Latest && (q.count > 1 || q.count == 1 && q.ring[q.head].Lines() > most) {
		late = append(late, q.pop())
	}
	q.mu.Unlock()
	for _, f := range late {
		q.Fail(f, DropLate, nil)
	}
}

// Done counts a frame from Next as delivered and releases it.
func (q *Queue) Done(f *Frame) {
	q.failing.Store(false)
	q.finish(f)
}

func (q *Queue) finish(f *Frame) {
	q.account.deliver(f)
	f.Release()
}

// Fail counts a frame from Next as dropped for the given reason and releases it. err is the cause; only the first of
// consecutive failures is logged. If err is nil nothing is logged, because the cause was logged elsewhere.
func (q *Queue) Fail(f *Frame, reason DropReason, err error) {
	if err != nil {
		q.complain(f, err)
	}
	q.account.Drop(f, reason)
	f.Release()
}

// complain logs err unless the previous frame failed as well.
func (q *Queue) complain(f *Frame, err error) {
	if q.failing.Swap(true) {
		return
	}
	log := q.log
	if log == nil {
		log = slog.Default()
	}
	log.Error(q.kind+" fails", q.kind, q.account.name, "first at frame", f.Sequence, "error", err)
}

// Len returns the number of waiting frames.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.count
}

// close makes Next return ErrDetached after all waiting frames are taken. Frames put later count as dropped.
func (q *Queue) close() {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		close(q.over)
	}
	q.mu.Unlock()
	q.tellRoom()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// drain closes the queue and drops the waiting frames. It is called when the consumer has ended.
func (q *Queue) drain() {
	q.close()
	q.empty()
}

// rest drops all waiting frames, and all frames put until resume is called, because the consumer has failed.
func (q *Queue) rest() {
	q.mu.Lock()
	q.resting.Store(true)
	q.mu.Unlock()
	q.empty()
	q.tellRoom()
}

func (q *Queue) resume() { q.resting.Store(false) }

func (q *Queue) empty() {
	for {
		q.mu.Lock()
		if q.count == 0 {
			q.mu.Unlock()
			return
		}
		f := q.pop()
		q.mu.Unlock()
		q.Fail(f, DropDetached, nil)
	}
}
