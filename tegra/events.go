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

// vector is an interrupt vector. raised holds a raise that has not been waited for yet.
type vector struct {
	raised chan struct{}
	count  atomic.Uint64 // raises since Open
	masked atomic.Bool   // a legacy line whose raise a wait has returned; it stays masked until the next wait
}

// eventfd is an eventfd that is read by a separate goroutine, which the runtime's poller wakes.
type eventfd struct{ file *os.File }

func (e *eventfd) close() { _ = e.file.Close() } // nothing is written to it here

// listen makes the module signal all of the function's interrupts, revocations and errors.
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

// on makes the module signal an event, and calls f after signals, with their number, until Close.
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
	select {
	case v.raised <- struct{}{}:
	default: // already raised and not seen yet
	}
}

// Vectors returns the number of the function's interrupt vectors.
func (d *Device) Vectors() int { return len(d.vectors) }

// Wait waits for an interrupt: it returns nil once the vector has been raised at least once since Wait last returned
// nil for it. No raise since Open is lost, except those of a fenced function that is not restricted by a strict IOMMU;
// several may be reported as one. Otherwise it returns ctx's error, one that wraps ErrGone or ErrClosed, or an error if
// there is no such vector or the module cannot unmask an interrupt line.
func (d *Device) Wait(ctx context.Context, vector int) error {
	if vector < 0 || vector >= len(d.vectors) {
		return fmt.Errorf("%s: interrupt vector %d, the function has %d", d.path, vector, len(d.vectors))
	}
	if err := d.unmask(&d.vectors[vector]); err != nil {
		return err
	}
	select {
	case <-d.vectors[vector].raised:
		d.vectors[vector].masked.Store(true)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-d.gone:
		return fmt.Errorf("%s: waiting for an interrupt: %w", d.path, ErrGone)
	case <-d.closing:
		return fmt.Errorf("%s: waiting for an interrupt: %w", d.path, ErrClosed)
	}
}

// unmask unmasks a legacy line if the caller has handled the registers since it was last raised, that is, if Wait has
// returned that raise and there is no newer one.
func (d *Device) unmask(v *vector) error {
	if d.what.Flags&uapi.InfoINTX == 0 || len(v.raised) > 0 || !v.masked.Swap(false) {
		return nil
	}
	_, err := d.drv.control(uapi.ControlUnmask, 0)
	return d.wrap(err, "interrupt line")
}

// Raised returns the total number of raises of all vectors since Open.
func (d *Device) Raised() (n uint64) {
	for i := range d.vectors {
		n += d.vectors[i].count.Load()
	}
	return n
}

// endRevoked ends the pins that the module has revoked: all of them if the function has gone or has lost its state.
func (d *Device) endRevoked() {
	d.revoking.Lock()
	defer d.revoking.Unlock()
	info, err := d.drv.info()
	gone := hasGone(err) || err == nil && info.State == uapi.StateGone
	if gone {
		d.goneOnce.Do(func() { close(d.gone) })
	}
	d.pinning.Lock() // afterwards, every pin being made is in the table
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

// lostBy converts Info.Error to the Reason for which pins end.
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

// hasGone reports whether a call failed because the function, or the open file, no longer exists.
func hasGone(err error) bool { return errors.Is(err, unix.ENODEV) || errors.Is(err, os.ErrClosed) }

// sentinel returns this package's error for an errno of one of the module's calls, or nil if there is none.
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

// CallError returns the error that a Device's methods wrap if one of the module's calls, such as uapi.CallPin, fails
// with errno.
func CallError(call uint, errno unix.Errno) error {
	err := &uapi.Error{Call: call, Errno: errno}
	if known := sentinel(call, errno); known != nil {
		return fmt.Errorf("%w: %w", known, err)
	}
	return err
}

// wrap adds the origin to an error of the module, and this package's error for it. It returns nil for nil.
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
	} else if errors.Is(err, unix.ENODEV) { // from mmap
		return fmt.Errorf("%s: %w: %w", what, ErrGone, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
