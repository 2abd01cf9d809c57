// SPDX-License-Identifier: Apache-2.0

package tegra

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// vector is an interrupt vector: raised holds a raise that nobody has waited for yet.
type vector struct {
	raised chan struct{}
	count  atomic.Uint64
	masked atomic.Bool // a legacy line that has come, and is kept quiet until the next wait
}

// eventfd is read by a goroutine of its own, parked in the poller.
type eventfd struct{ file *os.File }

func (e *eventfd) close() { _ = e.file.Close() } // nothing is written to it from here

// listen has the module signal all of the function's interrupts, revocations and errors.
func (d *Device) listen() error {
	d.vectors = make([]vector, d.what.NIRQs)
	for i := range d.vectors {
		v := &d.vectors[i]
		v.raised = make(chan struct{}, 1)
		if err := d.on(uapi.EventMSI, uint32(i), v.raise); err != nil {
			return err
		}
	}
	if err := d.on(uapi.EventRevoke, 0, func(uint64) { d.endRevoked() }); err != nil {
		return err
	}
	return d.on(uapi.EventError, 0, func(uint64) { d.endRevoked() })
}

// on calls f with the count of every signal until Close.
func (d *Device) on(kind, index uint32, f func(n uint64)) error {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("%s: eventfd: %w", d.path, err)
	}
	e := &eventfd{os.NewFile(uintptr(fd), "eventfd")}
	if err := d.drv.setEvent(kind, index, fd); err != nil {
		e.close()
		if errors.Is(err, unix.EBUSY) {
			err = fmt.Errorf("%w: %s", err, inUse(d.path))
		}
		return d.wrap(err, "event %d of kind %d", index, kind)
	}
	d.wakers = append(d.wakers, e)
	d.readers.Go(func() {
		for b := make([]byte, 8); ; {
			if _, err := e.file.Read(b); err != nil { // closed
				return
			}
			f(binary.NativeEndian.Uint64(b))
		}
	})
	return nil
}

func (v *vector) raise(n uint64) {
	v.count.Add(n)
	v.masked.Store(true)
	select {
	case v.raised <- struct{}{}:
	default: // raised already, and not yet seen
	}
}

// Vectors is how many interrupt vectors the function has.
func (d *Device) Vectors() int { return len(d.vectors) }

// Wait waits for an interrupt: it returns nil when the vector was raised at least once since the last Wait returned nil
// for it. No raise from Open on is lost, but, where no strict IOMMU holds the function back, those while it is
// fenced; several may come as one. Else it returns ctx's error, ErrGone or ErrClosed.
func (d *Device) Wait(ctx context.Context, vector int) error {
	if vector < 0 || vector >= len(d.vectors) {
		return fmt.Errorf("%s: interrupt vector %d, the function has %d", d.path, vector, len(d.vectors))
	}
	if err := d.unmask(&d.vectors[vector]); err != nil {
		return err
	}
	select {
	case <-d.vectors[vector].raised:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-d.gone:
		return fmt.Errorf("%s: waiting for an interrupt: %w", d.path, ErrGone)
	case <-d.closing:
		return fmt.Errorf("%s: waiting for an interrupt: %w", d.path, ErrClosed)
	}
}

// unmask lets a legacy line come again: whoever waits for it has been at the registers since it came last.
func (d *Device) unmask(v *vector) error {
	if d.what.Flags&uapi.InfoINTX == 0 || len(v.raised) > 0 || !v.masked.Swap(false) {
		return nil
	}
	_, err := d.drv.control(uapi.ControlUnmask, 0)
	return d.wrap(err, "interrupt line")
}

// Raised is how often all vectors were raised since Open.
func (d *Device) Raised() (n uint64) {
	for i := range d.vectors {
		n += d.vectors[i].count.Load()
	}
	return n
}

// endRevoked ends the pins that the module has revoked: all of them when the function has gone or has lost its state.
func (d *Device) endRevoked() {
	d.revoking.Lock()
	defer d.revoking.Unlock()
	info, err := d.drv.info()
	gone := hasGone(err) || err == nil && info.State == uapi.StateGone
	if gone {
		d.goneOnce.Do(func() { close(d.gone) })
	}
	d.pinning.Lock() // what is being pinned is in the table afterwards
	pins := d.livePins()
	d.pinning.Unlock()
	if err == nil && !gone && info.Errors != d.errors {
		d.errors = info.Errors
		for _, p := range pins {
			p.revoke(lostBy(info.Error))
		}
		return
	}
	for _, p := range pins {
		q := uapi.Query{Handle: p.handle}
		switch err := d.drv.query(&q, nil); {
		case hasGone(err):
			p.revoke(ReasonUnplug)
		case err == nil && q.Cookie == p.cookie && q.State == uapi.PinRevoked:
			p.revoke(reasonOf(q.Reason))
		}
	}
}

func reasonOf(reason uint32) Reason {
	switch reason {
	case uapi.ReasonMMExit:
		return ReasonExit
	case uapi.ReasonUnplug:
		return ReasonUnplug
	}
	return ReasonInvalidate
}

// lostBy is the reason of an error event.
func lostBy(why uint32) Reason {
	switch why {
	case uapi.ErrorFatal:
		return ReasonFatal
	case uapi.ErrorReset:
		return ReasonReset
	case uapi.ErrorSuspend, uapi.ErrorShutdown:
		return ReasonSuspend
	case uapi.ErrorExposed:
		return ReasonExposed
	}
	return ReasonLink
}

// hasGone says whether a call failed because the function, or the open file, is no more.
func hasGone(err error) bool { return errors.Is(err, unix.ENODEV) || errors.Is(err, os.ErrClosed) }

// sentinel is this package's error for an errno of one of the module's calls, nil when there is none.
func sentinel(call uint, errno unix.Errno) error {
	switch errno {
	case unix.E2BIG:
		return ErrSize
	case unix.EFAULT:
		return ErrRange
	case unix.EMEDIUMTYPE:
		return ErrCacheAttr
	case unix.ESTALE:
		return ErrFenced
	case unix.EBUSY:
		if call == uapi.CallPin {
			return ErrOverlap
		}
		return ErrInUse
	case unix.EAGAIN:
		if call == uapi.CallControl {
			return ErrGeneration
		}
	case unix.ENODEV:
		return ErrGone
	}
	return nil
}

// CallError returns the error that a Device's methods wrap if one of the module's calls, uapi.CallPin and the like, fails with errno.
func CallError(call uint, errno unix.Errno) error {
	err := &uapi.Error{Call: call, Errno: errno}
	if known := sentinel(call, errno); known != nil {
		return fmt.Errorf("%w: %w", known, err)
	}
	return err
}

// wrap says where an error of the module came from, and gives it this package's name. nil stays nil.
func (d *Device) wrap(err error, format string, a ...any) error {
	if err == nil {
		return nil
	}
	what := fmt.Sprintf("%s: %s", d.path, fmt.Sprintf(format, a...))
	if errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("%s: %w", what, ErrClosed)
	}
	var failed *uapi.Error
	if errors.As(err, &failed) {
		if known := sentinel(failed.Call, failed.Errno); known != nil {
			return fmt.Errorf("%s: %w: %w", what, known, err)
		}
	} else if errors.Is(err, unix.ENODEV) { // of mmap
		return fmt.Errorf("%s: %w: %w", what, ErrGone, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
