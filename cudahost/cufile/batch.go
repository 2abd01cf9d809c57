// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"context"
	"slices"
	"sync"
)

// An Op is one transfer of a batch (CUfileIOParams_t, §3.1.1).
type Op struct {
	File       *File
	Write      bool
	Base       uintptr // of the memory
	Offset     int64   // in the memory
	Size       int     // bytes
	FileOffset int64
}

// An OpStatus is the state of a transfer in a batch (CUfileStatus, §3.1.1: the list with Canceled).
type OpStatus int

// The statuses, with the document's values.
const (
	Waiting OpStatus = iota
	Pending
	Invalid
	Canceled
	Complete
	TimedOut
	Failed
)

func (s OpStatus) String() string {
	return [...]string{"waiting", "pending", "invalid", "canceled", "complete", "timed out", "failed"}[s]
}

// An Event is the state of a transfer in a batch.
type Event struct {
	Status OpStatus
	N      int   // bytes moved; for Complete, fewer than requested if a read has reached the end of the file
	Err    error // of Invalid and Failed
}

// A Batch is a set of transfers that were submitted together. They may complete in any order.
type Batch struct {
	driver *Driver
	ended  chan struct{} // closed when all have ended

	mu       sync.Mutex
	events   []Event
	canceled bool
	left     int // number of transfers that have not ended
}

// Submit starts transfers (cuFileBatchIOSubmit, §4.5.1) without waiting for them. The memory must not be used until
// they are done, except to read what is being written to a file. If one of them is ill-formed, none is started, and the
// error wraps what Read's error for that transfer would. If ops is empty, the error wraps InvalidValue.
func (d *Driver) Submit(ops []Op) (*Batch, error) {
	const call = "cuFileBatchIOSubmit"
	if err := d.use(call); err != nil {
		return nil, err
	}
	if len(ops) == 0 {
		d.done()
		return nil, &Error{Call: call, Status: InvalidValue}
	}
	held, err := d.holdAll(call, ops)
	release := func() {
		for _, op := range ops[:held] {
			op.File.users.Done()
		}
		d.done()
	}
	if err != nil {
		release()
		return nil, err
	}
	b := &Batch{driver: d, ended: make(chan struct{}), events: make([]Event, len(ops)), left: len(ops)}
	ops = slices.Clone(ops) // the caller may reuse them
	go func() {
		defer release()
		b.transferAll(ops)
	}()
	return b, nil
}

// holdAll checks transfers and holds their files, up to the first one that is refused. held is the number of files that
// the caller must release, even if err is not nil.
func (d *Driver) holdAll(call string, ops []Op) (held int, err error) {
	for _, op := range ops {
		if op.File == nil || op.File.driver != d {
			return held, &Error{Call: call, Status: HandleNotRegistered}
		}
		if err := op.File.hold(call); err != nil {
			return held, err
		}
		held++
		if _, err := d.check(call, op); err != nil {
			return held, err
		}
	}
	return held, nil
}

// atOnce is the maximum number of concurrent transfers of a batch. Transfers combined by backend.gather count as one.
const atOnce = 32

// transferAll performs the transfers, whose files must be held. A transfer of Size 0 moves nothing.
func (b *Batch) transferAll(ops []Op) {
	var all sync.WaitGroup
	room := make(chan struct{}, atOnce)
	defer all.Wait()
	for i, n := 0, 0; i < len(ops); i += n {
		n = ops[i].File.back.together(ops[i:])
		if !b.mayStart(i, n) {
			continue
		}
		room <- struct{}{}
		all.Go(func() {
			b.transfer(i, ops[i:i+n])
			<-room // ends: this transfer has sent a value
		})
	}
}

// transfer performs ops, which are the batch's transfers from number i on, and records their events.
func (b *Batch) transfer(i int, ops []Op) {
	whole := len(ops) > 1 && ops[0].File.back.gather(ops)
	for k, op := range ops {
		n, err := op.Size, error(nil)
		if !whole {
			n, err = op.File.back.inBatch("cuFileBatchIOSubmit", op)
		}
		if err != nil {
			b.recordEvent(i+k, Event{Failed, n, err})
			continue
		}
		b.recordEvent(i+k, Event{Status: Complete, N: n})
	}
}

// inBatch implements backend. Unlike transfer, it gives the engine even an operation of a single piece.
func (c *compat) inBatch(call string, op Op) (int, error) {
	set := c.driver.settings()
	list, err := c.driver.pieces(call, op, &set)
	if err != nil {
		return 0, err
	}
	m := &movement{call: call, op: op, pieces: list, ended: make(chan struct{})}
	m.moveAll(c)
	return m.result()
}

// mayStart reports whether the n transfers from i on may start, that is, whether the batch has not been canceled and the
// driver is not closing. It records them as pending if they may, and as canceled otherwise.
func (b *Batch) mayStart(i, n int) bool {
	b.mu.Lock()
	canceled := b.canceled || b.driver.closing.Load()
	for k := 0; k < n && !canceled; k++ {
		b.events[i+k].Status = Pending
	}
	b.mu.Unlock()
	for k := 0; k < n && canceled; k++ {
		b.recordEvent(i+k, Event{Status: Canceled})
	}
	return !canceled
}

func (b *Batch) recordEvent(i int, e Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events[i] = e
	if b.left--; b.left == 0 {
		close(b.ended)
	}
}

// Status returns the state of each transfer, in the order of Submit (cuFileBatchIOGetStatus, §4.5.2).
func (b *Batch) Status() []Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]Event(nil), b.events...)
}

// Wait waits until all transfers have ended, successfully or not, and returns nil. If ctx ends first, it returns ctx's
// error.
func (b *Batch) Wait(ctx context.Context) error {
	select {
	case <-b.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Cancel prevents transfers that have not started (cuFileBatchIOCancel, §4.5.3). Those that are with the kernel end
// normally; use Wait to wait for them.
func (b *Batch) Cancel() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.canceled = true
}
