// SPDX-License-Identifier: Apache-2.0

package v4l2

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/videodev"
)

// A node is an open V4L2 device. Errors of calls that set errno wrap it.
type node interface {
	videodev.Caller
	// mmap maps a plane of a buffer, which the device has at an offset, into memory.
	mmap(p videodev.PlaneOf, offset int64, length int) ([]byte, error)
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

// kernel is a device file of the kernel's own.
type kernel struct{ videodev.File }

func openKernel(path string) (kernel, error) {
	f, err := videodev.Open(path)
	return kernel{f}, err
}

func (k kernel) mmap(_ videodev.PlaneOf, offset int64, length int) ([]byte, error) {
	return k.Mmap(offset, length)
}

func (k kernel) munmap(b []byte) error { return k.Munmap(b) }

// sync does nothing: the kernel does it when a buffer is queued.
func (k kernel) sync(int, []byte) error { return nil }

func (k kernel) nvidia() bool { return false }

func (k kernel) wait(coded bool, limit time.Duration) error {
	what := int16(videodev.ForOutput)
	if coded {
		what = videodev.ForInput
	}
	ready, err := k.Wait(what, nil, limit)
	if err == nil && ready.Broken && !ready.Buffer {
		time.Sleep(glance) // nothing is queued, or the device has gone: dequeue will report it
	}
	return err
}

// glance is the polling interval for a device that cannot be waited for.
const glance = time.Millisecond

func (k kernel) close() error { return k.Close() }

// gone is a device that could not be reopened.
type gone struct{}

func (gone) Ioctl(uintptr, unsafe.Pointer) error               { return unix.ENODEV }
func (gone) mmap(videodev.PlaneOf, int64, int) ([]byte, error) { return nil, unix.ENODEV }
func (gone) munmap([]byte) error                               { return nil }
func (gone) sync(int, []byte) error                            { return unix.ENODEV }
func (gone) nvidia() bool                                      { return false }
func (gone) wait(coded bool, _ time.Duration) error            { return unix.ENODEV }
func (gone) close() error                                      { return nil }
