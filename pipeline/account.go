// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"sync/atomic"
	"time"
)

// DropReason says why a frame did not reach an output.
type DropReason uint8

const (
	DropQueue    DropReason = iota // the consumer was slower than the frames
	DropRate                       // the output asked for fewer frames a second
	DropPool                       // no free slot to write the output into
	DropStage                      // the stage failed on the frame
	DropFence                      // asynchronous work on the frame failed
	DropSink                       // the output failed on the frame
	DropDetached                   // the output was detached before its turn
	DropDamaged                    // the frame turned out to be damaged after it was handed on (Frame.Fill)
	DropLate                       // the output was too far behind to make up for it soon, and went on with a newer frame
	dropReasons
)

func (r DropReason) String() string {
	return [...]string{"queue", "rate", "pool", "stage", "fence", "sink", "detached", "damaged", "late"}[r]
}

// An Account keeps the books of one consumer of frames. Once the consumer has ended,
// Offered = Delivered + the sum of Dropped, exactly; before that the difference is waiting or in work.
type Account struct {
	name      string
	recorder  *Recorder
	offered   atomic.Uint64
	delivered atomic.Uint64
	dropped   [dropReasons]atomic.Uint64
	latency   Histogram
}

// NewAccount makes the books of the consumer called name. recorder may be nil.
func NewAccount(name string, recorder *Recorder) *Account {
	return &Account{name: name, recorder: recorder}
}

// Drop counts a frame that was offered as dropped.
func (a *Account) Drop(f *Frame, reason DropReason) {
	a.dropped[reason].Add(1)
	a.recorder.Record(a.name, EventDrop, f.Sequence, uint64(reason))
}

// refuse counts a frame as offered and dropped at once.
func (a *Account) refuse(f *Frame, reason DropReason) {
	a.offered.Add(1)
	a.Drop(f, reason)
}

func (a *Account) deliver(f *Frame) {
	a.delivered.Add(1)
	if !f.Filling() { // else the source still writes its times
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
	Latency   Percentiles       `json:"latency"`           // from DMA done to the consumer's end with the frame
}

// Counts reads the account.
func (a *Account) Counts() Counts {
	// offered is read last, so that a frame in between is seen as waiting and never as delivered out of nothing.
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

// Drops is the sum of all drops.
func (c Counts) Drops() uint64 {
	var n uint64
	for _, v := range c.Dropped {
		n += v
	}
	return n
}
