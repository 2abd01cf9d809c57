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
	Size       int
	FileOffset int64
}

// An OpStatus is how far a transfer of a batch is (CUfileStatus, §3.1.1: the list with Canceled).
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

// An Event tells about a transfer of a batch.
type Event struct {
	Status OpStatus
	N      int   // bytes moved; of Complete, less than asked for at the end of the file
	Err    error // of Invalid and Failed
}

// A Batch is a number of transfers that were submitted together. They may be done in any order.
type Batch struct {
	driver *Driver
	ended  chan struct{} // all are

	mu       sync.Mutex
	events   []Event
	canceled bool
	left     int
}

// Submit starts transfers (cuFileBatchIOSubmit, §4.5.1), and does not wait for them. The memory must stay as it is until they are
// done. Where one of them is ill-formed none is started: the error is its, and wraps what Read's would.
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
	ops = slices.Clone(ops) // they are the caller's again
	go func() {
		defer release()
		b.run(ops)
	}()
	return b, nil
}

// holdAll checks transfers and holds their files: those before the one that is refused.
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

// atOnce is how many transfers of a batch are under way at a time.
const atOnce = 32

// run makes the transfers, each of a file that is held. A transfer of Size 0 moves nothing.
func (b *Batch) run(ops []Op) {
	var all sync.WaitGroup
	room := make(chan struct{}, atOnce)
	defer all.Wait()
	for i, n := 0, 0; i < len(ops); i += n {
		n = b.driver.back.together(ops[i:])
		if !b.begin(i, n) {
			continue
		}
		room <- struct{}{}
		all.Go(func() {
			b.transfer(i, ops[i:i+n])
			<-room // ends: it has put a value there
		})
	}
}

// transfer makes the transfers from i on.
func (b *Batch) transfer(i int, ops []Op) {
	whole := len(ops) > 1 && b.driver.back.gather(ops)
	for k, op := range ops {
		n, err := op.Size, error(nil)
		if !whole {
			n, err = b.driver.back.inBatch("cuFileBatchIOSubmit", op)
		}
		if err != nil {
			b.end(i+k, Event{Failed, n, err})
			continue
		}
		b.end(i+k, Event{Status: Complete, N: n})
	}
}

// inBatch implements backend: by the engine, whatever the size.
func (c *compat) inBatch(call string, op Op) (int, error) {
	set := c.driver.settings()
	list, err := c.driver.pieces(call, op, &set)
	if err != nil {
		return 0, err
	}
	m := &movement{call: call, op: op, pieces: list, ended: make(chan struct{})}
	m.run(c)
	return m.result()
}

// begin says whether n transfers, from i on, may start: the batch has not been canceled.
func (b *Batch) begin(i, n int) bool {
	b.mu.Lock()
	canceled := b.canceled || b.driver.closing.Load()
	for k := 0; k < n && !canceled; k++ {
		b.events[i+k].Status = Pending
	}
	b.mu.Unlock()
	for k := 0; k < n && canceled; k++ {
		b.end(i+k, Event{Status: Canceled})
	}
	return !canceled
}

func (b *Batch) end(i int, e Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events[i] = e
	if b.left--; b.left == 0 {
		close(b.ended)
	}
}

// Status is how far each transfer is, in the order of Submit (cuFileBatchIOGetStatus, §4.5.2).
func (b *Batch) Status() []Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]Event(nil), b.events...)
}

// Wait waits until all transfers have ended, well or not, and returns nil; or until ctx ends, and returns its error.
func (b *Batch) Wait(ctx context.Context) error {
	select {
	case <-b.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Cancel has the transfers that have not begun not begin (cuFileBatchIOCancel, §4.5.3). Those that the kernel has end as they
// would: Wait tells when.
func (b *Batch) Cancel() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.canceled = true
}
