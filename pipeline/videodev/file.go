// SPDX-License-Identifier: Apache-2.0

package videodev

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Caller makes requests to a device. argument points to the structure of the request; errors wrap unix.Errno.
type Caller interface {
	Ioctl(request uintptr, argument unsafe.Pointer) error
}

// A File is an open device file.
type File int

// Open opens a device file, without waiting in requests.
func Open(path string) (File, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return File(fd), nil
}

// Ioctl implements Caller. Interrupted requests are repeated.
func (f File) Ioctl(request uintptr, argument unsafe.Pointer) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(f), request, uintptr(argument))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}

// Mmap maps length bytes of a buffer, which the device has at an offset.
func (f File) Mmap(offset int64, length int) ([]byte, error) {
	return unix.Mmap(int(f), offset, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// Munmap unmaps what Mmap has returned.
func (f File) Munmap(b []byte) error { return unix.Munmap(b) }

// Ready says what a device has.
type Ready struct {
	Buffer bool // a buffer may be dequeued, of the kind that was waited for
	Event  bool // an event may be dequeued
	Broken bool // the device has gone, or its queue is not streaming
}

// What a device is waited for.
const (
	ForEvent  = unix.POLLPRI
	ForInput  = unix.POLLIN  // a buffer of a capture
	ForOutput = unix.POLLOUT // a buffer of an output
)

// Wait waits until the device has what is waited for or is broken, wake (which may be nil) is set, or limit has passed. A
// limit below a millisecond counts as one.
func (f File) Wait(what int16, wake *Wake, limit time.Duration) (Ready, error) {
	list := [2]unix.PollFd{{Fd: int32(f), Events: what}}
	if err := wake.Poll(list[:], limit); err != nil {
		return Ready{}, err
	}
	got := list[0].Revents
	return Ready{
		Buffer: got&what&(ForInput|ForOutput) != 0,
		Event:  got&what&ForEvent != 0,
		Broken: got&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0,
	}, nil
}

// Close closes the file.
func (f File) Close() error { return unix.Close(int(f)) }

// A Wake ends a Wait from another goroutine. It stays set until it is cleared. Only a Wait in progress costs it system
// calls.
type Wake struct {
	fd    int
	set   atomic.Bool
	waits atomic.Bool // a Wait is in progress, or begins

	closing sync.Mutex // held while fd is written to or closed
	closed  bool
	one     [8]byte // on the heap, as all memory that calls get
	count   [8]byte
}

// NewWake returns a Wake, which the caller must close.
func NewWake() (*Wake, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	w := &Wake{fd: fd}
	binary.NativeEndian.PutUint64(w.one[:], 1)
	return w, os.NewSyscallError("eventfd", err)
}

// Set ends the current Wait, or the next one. It is safe for concurrent use.
func (w *Wake) Set() {
	if w.set.Store(true); !w.waits.Load() { // Poll sees that it is set
		return
	}
	w.closing.Lock()
	defer w.closing.Unlock()
	if !w.closed {
		_, _ = unix.Write(w.fd, w.one[:]) // it fails only if the counter is full, and then Poll returns anyway
	}
}

// Clear takes back earlier calls of Set.
func (w *Wake) Clear() { w.set.Store(false) }

// Poll waits for the events of all elements of list but the last one, which it uses itself, until w (which may be nil) is
// set or limit has passed. A limit below a millisecond counts as one. Only one goroutine may call it.
func (w *Wake) Poll(list []unix.PollFd, limit time.Duration) error {
	last, wait := &list[len(list)-1], max(int(limit/time.Millisecond), 1)
	if *last = (unix.PollFd{Fd: -1}); w != nil {
		*last = unix.PollFd{Fd: int32(w.fd), Events: unix.POLLIN}
		w.waits.Store(true)
		defer w.waits.Store(false)
		if w.set.Load() {
			wait = 0
		}
	}
	_, err := unix.Poll(list, wait)
	if errors.Is(err, unix.EINTR) {
		clear(list) // nothing is ready
		return nil
	}
	if last.Revents != 0 {
		_, _ = unix.Read(w.fd, w.count[:]) // it never waits
	}
	return err
}

// Close frees the Wake. Set does nothing afterwards.
func (w *Wake) Close() error {
	w.closing.Lock()
	defer w.closing.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	return unix.Close(w.fd)
}
