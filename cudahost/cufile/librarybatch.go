// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"errors"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ioParams is CUfileIOParams_t of cufile.h.
type ioParams struct {
	mode, _    int32
	base       uintptr
	fileOffset int64
	offset     int64
	size       uint64
	handle     uintptr
	opcode, _  int32
	cookie     uint64
}

const batchMode = 1 // CUFILE_BATCH

// ioEvent is CUfileIOEvents_t of cufile.h.
type ioEvent struct {
	cookie    uint64
	status, _ int32
	ret       int64 // bytes, or the negative of an error
}

// libraryStatus are the bits of CUfileStatus_t.
var libraryStatus = map[int32]OpStatus{
	1: Waiting, 2: Pending, 4: Invalid, 8: Canceled, 0x10: Complete, 0x20: TimedOut, 0x40: Failed,
}

// batch implements backend: it makes batches of as many transfers as the library takes, one after the other.
func (l *library) batch(b *Batch, ops []Op) {
	for first := 0; first < len(ops); first += l.most {
		var params []ioParams
		for i, op := range ops[first:min(first+l.most, len(ops))] {
			i += first
			switch {
			case !b.begin(i):
			case op.Size == 0:
				b.end(i, Event{Status: Complete})
			default:
				p := ioParams{
					mode: batchMode, base: op.Base, fileOffset: op.FileOffset, offset: op.Offset, size: uint64(op.Size),
					handle: op.File.handle, cookie: uint64(i),
				}
				if op.Write {
					p.opcode = 1
				}
				params = append(params, p)
			}
		}
		if len(params) > 0 {
			l.part(b, ops, params)
		}
	}
}

// part makes a batch. The library has the parameters until it is destroyed.
func (l *library) part(b *Batch, ops []Op, params []ioParams) {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&params[0])
	left := map[int]bool{}
	for _, p := range params {
		left[int(p.cookie)] = true
	}
	fail := func(e Event) {
		for i := range left {
			b.end(i, e)
		}
	}
	handle := new(uintptr)
	if err := l.call(symBatchIOSetUp, uintptr(unsafe.Pointer(handle)), uintptr(len(params))); err != nil {
		fail(Event{Status: Failed, Err: err})
		return
	}
	defer l.destroy(*handle)
	if err := l.call(symBatchIOSubmit, *handle, uintptr(len(params)), uintptr(unsafe.Pointer(&params[0])), 0); err != nil {
		fail(Event{Status: Failed, Err: err})
		return
	}
	fail(l.await(b, ops, *handle, left))
}

func (l *library) destroy(handle uintptr) {
	_ = l.call(symBatchIODestroy, handle) // it returns nothing: what is in the register is no result
}

// How long a batch is waited for at a time, and how long after it has been canceled.
const (
	batchWait   = 20 * time.Millisecond
	cancelLimit = 5 * time.Second
)

// await tells b how its transfers end, and takes them from left. What it returns is the end of those that are left.
func (l *library) await(b *Batch, ops []Op, handle uintptr, left map[int]bool) Event {
	events := make([]ioEvent, len(left))
	var canceled time.Time
	for len(left) > 0 {
		n, timeout := uint32(len(left)), [2]int64{0, int64(batchWait)} // struct timespec
		if err := l.call(symBatchIOGetStatus, handle, 1, uintptr(unsafe.Pointer(&n)), uintptr(unsafe.Pointer(&events[0])),
			uintptr(unsafe.Pointer(&timeout))); err != nil {
			return Event{Status: Failed, Err: err}
		}
		for _, e := range events[:min(int(n), len(events))] {
			i := int(e.cookie)
			if ended, is := l.ended(ops[i], &e); ended && left[i] {
				delete(left, i)
				b.end(i, is)
			}
		}
		if !b.isCanceled() {
			continue
		}
		if canceled.IsZero() {
			canceled = time.Now()
			if err := l.call(symBatchIOCancel, handle); err != nil {
				return Event{Status: Failed, Err: err}
			}
		} else if time.Since(canceled) > cancelLimit {
			return Event{Status: TimedOut, Err: errors.New("canceled, and the library does not say how it ended")}
		}
	}
	return Event{}
}

// ended is an event of the library as ours; not of a transfer that goes on.
func (l *library) ended(op Op, e *ioEvent) (bool, Event) {
	is := Event{Status: libraryStatus[e.status]}
	switch is.Status {
	case Waiting, Pending:
		return false, is
	case Complete, Invalid, Failed:
		if is.N, is.Err = moved("cuFileBatchIOSubmit", op.File, int(e.ret)); is.Err != nil && is.Status == Complete {
			is.Status = Failed
		} else if is.Err == nil && is.Status != Complete {
			is.Err = unix.EIO
		}
	}
	return true, is
}

// isCanceled says whether Cancel was called, or the driver is being closed.
func (b *Batch) isCanceled() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.canceled || b.driver.closing.Load()
}
