// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tegracast/tegracast/pipeline/videodev"
)

// A watchedDevice notes since when the driver has been in a call.
type watchedDevice struct {
	began   atomic.Int64 // ns since processStart, and 1 more; 0: no call
	request atomic.Uintptr
}

var processStart = time.Now()

// Calls that are no requests.
const (
	callOpen uintptr = 1 + iota
	callMmap
	callClose
	callPoll
)

// in notes the begin of a call: of a request, or one of those above.
func (w *watchedDevice) in(request uintptr) {
	w.request.Store(request)
	w.began.Store(int64(time.Since(processStart)) + 1)
}

// out notes the end of the call.
func (w *watchedDevice) out() { w.began.Store(0) }

// poll notes that the driver is asked for events, or has answered.
func (w *watchedDevice) poll(begins bool) {
	if begins {
		w.in(callPoll)
	} else {
		w.out()
	}
}

// call returns the current call and its duration, or "".
func (w *watchedDevice) call() (what string, since time.Duration) {
	began := w.began.Load()
	if began == 0 {
		return "", 0
	}
	return callName(w.request.Load()), time.Since(processStart) - time.Duration(began-1)
}

func callName(request uintptr) string {
	switch request {
	case callOpen:
		return "open"
	case callMmap:
		return "mmap"
	case callClose:
		return "close"
	case callPoll:
		return "poll"
	case videodev.SetFormat:
		return "VIDIOC_S_FMT"
	case videodev.MakeBuffers:
		return "VIDIOC_REQBUFS"
	case videodev.StreamOn:
		return "VIDIOC_STREAMON"
	case videodev.StreamOff:
		return "VIDIOC_STREAMOFF"
	case videodev.Enqueue:
		return "VIDIOC_QBUF"
	case videodev.Dequeue:
		return "VIDIOC_DQBUF"
	case videodev.SetControls:
		return "VIDIOC_S_EXT_CTRLS"
	}
	return "an ioctl"
}

// A watchedFile is a device whose calls are watched.
type watchedFile struct {
	videoDevice
	watch *watchedDevice
}

// Ioctl implements videodev.Caller.
func (f *watchedFile) Ioctl(request uintptr, argument unsafe.Pointer) error {
	f.watch.in(request)
	err := f.videoDevice.Ioctl(request, argument)
	f.watch.out()
	return err
}

// Mmap implements videoDevice.
func (f *watchedFile) Mmap(offset int64, length int) ([]byte, error) {
	f.watch.in(callMmap)
	defer f.watch.out()
	return f.videoDevice.Mmap(offset, length)
}

// Close implements videoDevice.
func (f *watchedFile) Close() error {
	f.watch.in(callClose)
	defer f.watch.out()
	return f.videoDevice.Close()
}
