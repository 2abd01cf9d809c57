// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"sync/atomic"
	"time"
)

// DropReason is the reason why a consumer, an output or a stage, did not deliver a frame.
type DropReason uint8

const (
	DropQueue    DropReason = iota // the consumer was slower than the frames
	DropRate                       // the output asked for a lower frame rate
	DropPool                       // the pool had no free slot for the stage's output
	DropStage                      // the stage failed on the frame
	DropFence                      // asynchronous work on the frame failed
	DropSink                       // the output failed on the frame
	DropDetached                   // the output was detached, or had failed, before the frame's turn
	DropDamaged                    // the frame turned out to be damaged after it was handed on (Frame.Fill)
	DropLate                       // the output was too far behind to catch up soon, and skipped to a newer frame
	dropReasons
)

func (r DropReason) String() string {
	return [...]string{"queue", "rate", "pool", "stage", "fence", "sink", "detached", "damaged", "late"}[r]
}

// An Account counts the frames of one consumer. After the consumer has ended, Counts.Offered equals Delivered plus the
// sum of Dropped, exactly; before that, the difference is the number of frames that are waiting or being processed.
type Account struct {
	name      string
	recorder  *Recorder
	offered   atomic.Uint64
	delivered atomic.Uint64
	dropped   [dropReasons]atomic.Uint64
	latency   Histogram
}

// NewAccount returns an empty account of the consumer called name. recorder may be nil.
func NewAccount(name string, recorder *Recorder) *Account {
	return &Account{name: name, recorder: recorder}
}

// Drop counts a frame as dropped. The frame must already be counted as offered.
func (a *Account) Drop(f *Frame, reason DropReason) {
	a.dropped[reason].Add(1)
	a.recorder.Record(a.name, EventDrop, f.Sequence, uint64(reason))
}

// refuse counts a frame as both offered and dropped.
func (a *Account) refuse(f *Frame, reason DropReason) {
	a.offered.Add(1)
	a.Drop(f, reason)
}

func (a *Account) deliver(f *Frame) {
	a.delivered.Add(1)
	if !f.Filling() { // otherwise the source is still writing its times
		if at := f.Times.Arrived(); !at.IsZero() {
			a.latency.Observe(time.Since(at))
		}
	}
	a.recorder.Record(a.name, EventDelivered, f.Sequence, 0)
}

// Counts is a snapshot of an Account.
type Counts struct {
	Name      string            `json:"name"`
	Offered   uint64            `json:"offered"`
	Delivered uint64            `json:"delivered"`
	Dropped   map[string]uint64 `json:"dropped,omitempty"` // by reason
	Latency   Percentiles       `json:"latency"`           // from the end of DMA or replay until the consumer has finished with the frame
}

// Counts returns a snapshot of the account.
func (a *Account) Counts() Counts {
	// offered is read last: a frame counted in between then appears as waiting, and Delivered never exceeds Offered.
	c := Counts{Name: a.name, Delivered: a.delivered.Load()}
	for r := range dropReasons {
		if n := a.dropped[r].Load(); n > 0 {
			if c.Dropped == nil {
				c.Dropped = map[string]uint64{}
			}
			c.Dropped[r.String()] = n
		}
	}
	c.Offered, c.Latency = a.offered.Load(), a.latency.Percentiles()
	return c
}

// Drops returns the sum of all drops.
func (c Counts) Drops() uint64 {
	var n uint64
	for _, v := range c.Dropped {
		n += v
	}
	return n
}
