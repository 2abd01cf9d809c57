// SPDX-License-Identifier: Apache-2.0

package videodev

import (
	"os"
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

// Wait waits until the device has what is waited for or is broken, wake (which may be nil) is set, or limit has passed. It
// may return earlier, with nothing. A limit below a millisecond counts as one.
func (f File) Wait(what int16, wake *Wake, limit time.Duration) (Ready, error) {
	got, err := wake.Poll(int(f), what, limit)
	return Ready{
		Buffer: got&what&(ForInput|ForOutput) != 0,
		Event:  got&what&ForEvent != 0,
		Broken: got&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0,
	}, err
}

// Close closes the file.
func (f File) Close() error { return unix.Close(int(f)) }
