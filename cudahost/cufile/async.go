// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A Stream is a queue of work for a GPU (CUstream) into which a transfer can be placed. *cudahost.Stream implements it.
type Stream interface {
	// Handle returns the CUstream.
	Handle() uintptr
	// Call places a call of f on the stream. f runs after the work already on the stream and before later work. f must
	// not call CUDA.
	Call(f func()) error
}

// StreamFlags say which values of a stream's transfers are fixed at submission, and whether all are multiples of 4096
// (cufile.h, CU_FILE_STREAM_…; the document does not define the flags). Values that are not fixed are read when the
// stream reaches the transfer.
type StreamFlags uint

// The flags, with the values of cufile.h.
const (
	FixedOffset     StreamFlags = 1 << iota // Async.Offset
	FixedFileOffset                         // Async.FileOffset
	FixedSize                               // Async.Size
	PageAligned                             // the three values and the base are multiples of 4096; others are refused

	allFixed = FixedOffset | FixedFileOffset | FixedSize
)

// Async has the parameters and the result of a transfer in a stream (cuFileReadAsync, §3.6, §4.4). It must be in host
// memory that does not move and that CUDA knows (cudahost's AllocHost), and stay there until the stream has passed the
// transfer.
type Async struct {
	Size       uint64 // its value at submission is the maximum
	FileOffset int64
	Offset     int64 // in the memory
	result     int64 // bytes; -1: an error of the file; otherwise the negative Status
}

// Result returns the number of bytes transferred. It is valid after the stream has passed the transfer. An error wraps
// a Status, or EIO for any error of the file, because a stream does not report the errno.
func (a *Async) Result() (int, error) {
	switch n := atomic.LoadInt64(&a.result); {
	case n >= 0:
		return int(n), nil
	case n < -baseError:
		return 0, &Error{Call: "a transfer in a stream", Status: Status(-n)}
	}
	return 0, &Error{Call: "a transfer in a stream", Why: unix.EIO}
}

// set stores the result of a transfer.
func (a *Async) set(n int, err error) {
	var e *Error
	switch {
	case err == nil:
	case errors.As(err, &e) && e.Status != Success:
		n = -int(e.Status)
	default:
		n = -1
	}
	atomic.StoreInt64(&a.result, int64(n))
}

// RegisterStream declares which values of the stream's transfers are fixed at submission (cuFileStreamRegister of
// cufile.h). Streams need not be registered. A registered stream must not be closed before it is deregistered or the
// driver is closed. Errors wrap InvalidValue (also for a stream that is already registered), DriverNotInitialized or
// DriverClosing.
func (d *Driver) RegisterStream(s Stream, flags StreamFlags) error {
	return d.stream("cuFileStreamRegister", s, func(was *StreamFlags) error {
		if was != nil || flags&^(allFixed|PageAligned) != 0 {
			return fmt.Errorf("flags %#x: only bits of 0xf are allowed, and only for a stream that is not registered", uint(flags))
		}
		d.streams[s.Handle()] = flags
		return nil
	})
}

// DeregisterStream ends a registration (cuFileStreamDeregister of cufile.h). Errors wrap InvalidValue (also for a
// stream that is not registered), DriverNotInitialized or DriverClosing.
func (d *Driver) DeregisterStream(s Stream) error {
	return d.stream("cuFileStreamDeregister", s, func(was *StreamFlags) error {
		if was == nil {
			return errors.New("the stream is not registered")
		}
		delete(d.streams, s.Handle())
		return nil
	})
}

// stream calls change with the flags of a stream, or nil if the stream is not registered. change is called with d.mu
// held; its errors are wrapped as InvalidValue.
func (d *Driver) stream(call string, s Stream, change func(was *StreamFlags) error) error {
	if err := d.use(call); err != nil {
		return err
	}
	defer d.done()
	if s == nil {
		return &Error{Call: call, What: "no stream", Status: InvalidValue}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var was *StreamFlags
	if flags, ok := d.streams[s.Handle()]; ok {
		was = &flags
	}
	if err := change(was); err != nil {
		return &Error{Call: call, Status: InvalidValue, Why: err}
	}
	return nil
}

// ReadAsync places a read on a stream (cuFileReadAsync, §4.4.1). The read starts after the earlier work on the stream,
// and later work waits for it. ReadAsync returns after the submission. If s is nil, the read has ended when ReadAsync
// returns. base is as in Read.
//
// Errors wrap InvalidValue, HandleNotRegistered, DriverNotInitialized, DriverClosing, or CUDADriverError if CUDA does
// not accept the work, or come from libcufile. All other errors, and the value that Read would return, are in a's
// Result.
func (f *File) ReadAsync(s Stream, base uintptr, a *Async) error {
	return f.async("cuFileReadAsync", s, Op{File: f, Base: base}, a)
}

// WriteAsync places a write on a stream (cuFileWriteAsync, §4.4.2), as ReadAsync does a read.
func (f *File) WriteAsync(s Stream, base uintptr, a *Async) error {
	return f.async("cuFileWriteAsync", s, Op{File: f, Base: base, Write: true}, a)
}

func (f *File) async(call string, s Stream, op Op, a *Async) error {
	d := f.driver
	if err := d.use(call); err != nil {
		return err
	}
	if err := f.hold(call); err != nil {
		d.done()
		return err
	}
	done := func() {
		f.users.Done()
		d.done()
	}
	if a == nil || op.Base == 0 {
		done()
		return &Error{Call: call, What: f.caller.Name(), Status: InvalidValue, Why: errors.New("the memory, or the result, is nil")}
	}
	if s == nil {
		a.set(f.transfer(call, a.fill(op)))
		done()
		return nil
	}
	d.mu.Lock()
	flags := d.streams[s.Handle()]
	d.mu.Unlock()
	given := a.fill(op)
	if flags&allFixed == allFixed && flags&PageAligned != 0 && !given.aligned() {
		done()
		return &Error{Call: call, What: f.caller.Name(), Status: InvalidValue, Why: errNotAligned}
	}
	if err := f.back.async(call, s, given, a, flags, done); err != nil {
		done()
		if e := (*Error)(nil); errors.As(err, &e) {
			return err
		}
		return &Error{Call: call, What: f.caller.Name(), Status: CUDADriverError, Why: err}
	}
	return nil
}

// inTurn performs a transfer when the stream has reached it. given has the parameters at submission, now the current
// ones.
func (f *File) inTurn(call string, given, now Op, flags StreamFlags) (int, error) {
	if flags&FixedOffset != 0 {
		now.Offset = given.Offset
	}
	if flags&FixedFileOffset != 0 {
		now.FileOffset = given.FileOffset
	}
	if flags&FixedSize != 0 || now.Size > given.Size {
		now.Size = given.Size
	}
	switch {
	case f.driver.closing.Load():
		return 0, &Error{Call: call, Status: DriverClosing}
	case flags&PageAligned != 0 && !now.aligned():
		return 0, &Error{Call: call, Status: InvalidValue, Why: errNotAligned}
	}
	return f.transfer(call, now)
}

var errNotAligned = errors.New("the stream is registered for multiples of 4096")

// fill returns op with the size and the offsets that a contains now.
func (a *Async) fill(op Op) Op {
	op.Size, op.FileOffset, op.Offset = int(a.Size), a.FileOffset, a.Offset
	return op
}

func (op Op) aligned() bool {
	return (uint64(op.Base)|uint64(op.Size)|uint64(op.FileOffset)|uint64(op.Offset))%pageSize == 0
}
