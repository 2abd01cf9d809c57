// SPDX-License-Identifier: Apache-2.0

package v4l2

import (
	"errors"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A node is an open V4L2 device. Errors of calls that set errno wrap it.
type node interface {
	ioctl(request uintptr, argument unsafe.Pointer) error
	// mmap maps a plane of a buffer, which the device has at an offset, into memory.
	mmap(p planeOf, offset int64, length int) ([]byte, error)
	munmap(b []byte) error
	// sync makes visible to the device what has been written to memory that mmap has returned for a plane of a picture.
	sync(plane int, b []byte) error
	// nvidia reports whether the device is one of NVIDIA's, which differs from what the kernel's documentation demands.
	nvidia() bool
	// wait waits until a buffer may be done, of coded data if coded is set, otherwise of pictures, but at most for
	// limit.
	wait(coded bool, limit time.Duration) error
	close() error
}

// planeOf names a plane of a buffer: the type of its queue, its index, and the plane.
type planeOf struct{ kind, index, plane uint32 }

// kernel is the file descriptor of a device file.
type kernel int

func openKernel(path string) (kernel, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return kernel(fd), nil
}

func (k kernel) ioctl(request uintptr, argument unsafe.Pointer) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(k), request, uintptr(argument))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}

func (k kernel) mmap(_ planeOf, offset int64, length int) ([]byte, error) {
	return unix.Mmap(int(k), offset, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func (k kernel) munmap(b []byte) error { return unix.Munmap(b) }

// sync does nothing: the kernel does it when a buffer is queued.
func (k kernel) sync(int, []byte) error { return nil }

func (k kernel) nvidia() bool { return false }

func (k kernel) wait(coded bool, limit time.Duration) error {
	events := int16(unix.POLLOUT)
	if coded {
		events = unix.POLLIN
	}
	list := []unix.PollFd{{Fd: int32(k), Events: events}}
	_, err := unix.Poll(list, int(max(limit, 0)/time.Millisecond)+1)
	switch {
	case errors.Is(err, unix.EINTR):
		return nil
	case err == nil && list[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 && list[0].Revents&events == 0:
		time.Sleep(glance) // nothing is queued, or the device has gone: dequeue will report it
	}
	return err
}

// glance is the polling interval for a device that cannot be waited for.
const glance = time.Millisecond

func (k kernel) close() error { return unix.Close(int(k)) }

// gone is a device that could not be reopened.
type gone struct{}

func (gone) ioctl(uintptr, unsafe.Pointer) error      { return unix.ENODEV }
func (gone) mmap(planeOf, int64, int) ([]byte, error) { return nil, unix.ENODEV }
func (gone) munmap([]byte) error                      { return nil }
func (gone) sync(int, []byte) error                   { return unix.ENODEV }
func (gone) nvidia() bool                             { return false }
func (gone) wait(coded bool, _ time.Duration) error   { return unix.ENODEV }
func (gone) close() error                             { return nil }
