// SPDX-License-Identifier: Apache-2.0

package v4l2

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"
)

// nvidiaLibrary is the library through which NVIDIA's encoder must be used. It has the functions of libv4l2
// (libv4l2.h).
const nvidiaLibrary = "libnvv4l2.so"

// nvidiaNodes contains the prefixes of the names of the device files of NVIDIA's encoders.
var nvidiaNodes = []string{"v4l2-nvenc", "nvhost-msenc"}

func isNVIDIA(path string) bool {
	for _, name := range nvidiaNodes {
		if strings.HasPrefix(filepath.Base(path), name) {
			return true
		}
	}
	return false
}

// through is a device used through a library with the functions of libv4l2. None of them waits for the device, as poll(2)
// does, so wait sleeps instead.
type through struct {
	fd                                      uintptr
	opens, closes, ioctls, maps, unmaps, no uintptr // addresses of functions; no is that of __errno_location
}

// openThrough opens a device through a library.
func openThrough(library, path string) (*through, error) {
	handle, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_GLOBAL) // never closed
	if err != nil {
		return nil, fmt.Errorf("%s is used through %s, which cannot be opened: %w", path, library, err)
	}
	t := &through{}
	for name, f := range map[string]*uintptr{
		"v4l2_open": &t.opens, "v4l2_close": &t.closes, "v4l2_ioctl": &t.ioctls, "v4l2_mmap": &t.maps, "v4l2_munmap": &t.unmaps,
	} {
		if *f, err = purego.Dlsym(handle, name); err != nil {
			return nil, fmt.Errorf("%s: %w", library, err)
		}
	}
	if t.no, err = purego.Dlsym(purego.RTLD_DEFAULT, "__errno_location"); err != nil {
		return nil, err
	}
	name := append([]byte(path), 0)
	if t.fd, err = t.call(t.opens, uintptr(unsafe.Pointer(&name[0])), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return t, nil
}

// call calls a function of the library, which returns -1 and sets errno on error.
//
//go:uintptrescapes
func (t *through) call(f uintptr, args ...uintptr) (uintptr, error) {
	runtime.LockOSThread() // errno belongs to the thread
	defer runtime.UnlockOSThread()
	r, _, _ := purego.SyscallN(f, args...)
	if int32(r) != -1 {
		return r, nil
	}
	at, _, _ := purego.SyscallN(t.no)
	return r, unix.Errno(**(**int32)(unsafe.Pointer(&at)))
}

func (t *through) ioctl(request uintptr, argument unsafe.Pointer) error {
	for {
		if _, err := t.call(t.ioctls, t.fd, request, uintptr(argument)); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (t *through) mmap(offset int64, length int) ([]byte, error) {
	at, err := t.call(t.maps, 0, uintptr(length), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED, t.fd, uintptr(offset))
	if err != nil {
		return nil, err
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), length), nil
}

func (t *through) munmap(b []byte) error {
	_, err := t.call(t.unmaps, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	return err
}

func (t *through) wait(bool, time.Duration) error {
	time.Sleep(glance)
	return nil
}

func (t *through) close() error {
	_, err := t.call(t.closes, t.fd)
	return err
}
