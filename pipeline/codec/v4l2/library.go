// SPDX-License-Identifier: Apache-2.0

package v4l2

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/videodev"
)

// Libraries through which NVIDIA's encoder must be used, in the packages nvidia-l4t-multimedia and
// nvidia-l4t-multimedia-utils.
const (
	nvidiaLibrary  = "libnvv4l2.so"             // has the functions of libv4l2 (libv4l2.h)
	surfaceLibrary = "libnvbufsurface.so.1.0.0" // manages the device's memory (nvbufsurface.h)
)

// nvidiaFolders are the folders in which JetPack 6 and later, and JetPack 5, have these libraries. The linker may
// not find libnvv4l2.so by its name, because its soname is that of libv4l2.
var nvidiaFolders = []string{"/usr/lib/aarch64-linux-gnu/nvidia", "/usr/lib/aarch64-linux-gnu/tegra"}

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

// through is a device of NVIDIA's. libnvv4l2 recognises it by the name of its file, which may be a copy of /dev/null, as
// in JetPack 6, and has no function that waits for the device, as poll(2) does, so wait sleeps instead.
type through struct {
	fd                    uintptr
	opens, closes, ioctls uintptr // addresses of functions of libnvv4l2
	no                    uintptr // address of __errno_location
	fromFd, forDevice     uintptr // addresses of functions of libnvbufsurface
	surfaces              map[*byte]uintptr
}

// load loads a library, which is never closed, and looks up functions in it.
func load(library string, functions map[string]*uintptr) error {
	file := library // the linker finds it, unless it is in one of the folders
	for _, folder := range nvidiaFolders {
		at := filepath.Join(folder, library)
		if _, err := os.Stat(at); err == nil {
			file = at
			break
		}
	}
	handle, err := purego.Dlopen(file, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return fmt.Errorf("%s cannot be opened: %w", library, err)
	}
	for name, f := range functions {
		if *f, err = purego.Dlsym(handle, name); err != nil {
			return fmt.Errorf("%s: %w", library, err)
		}
	}
	return nil
}

// opening guards v4l2_open, which is not safe for concurrent use (NvV4l2Element.cpp of NVIDIA's samples).
var opening sync.Mutex

// openThrough opens a device through two libraries, NVIDIA's unless a test has others.
func openThrough(library, surfaces, path string) (*through, error) {
	t := &through{surfaces: map[*byte]uintptr{}}
	if err := load(library, map[string]*uintptr{"v4l2_open": &t.opens, "v4l2_close": &t.closes, "v4l2_ioctl": &t.ioctls}); err != nil {
		return nil, fmt.Errorf("%s is used through NVIDIA's libraries: %w: apt-get install nvidia-l4t-multimedia", path, err)
	}
	if err := load(surfaces, map[string]*uintptr{"NvBufSurfaceFromFd": &t.fromFd, "NvBufSurfaceSyncForDevice": &t.forDevice}); err != nil {
		return nil, fmt.Errorf("%s would encode old pictures, because what the CPU writes cannot be made visible to it: %w: "+
			"apt-get install nvidia-l4t-multimedia-utils of JetPack 5 or later", path, err)
	}
	var err error
	if t.no, err = purego.Dlsym(purego.RTLD_DEFAULT, "__errno_location"); err != nil {
		return nil, err
	}
	name := append([]byte(path), 0)
	opening.Lock()
	defer opening.Unlock()
	if t.fd, err = t.call(t.opens, uintptr(unsafe.Pointer(&name[0])), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return t, nil
}

// call calls a function of libnvv4l2, which returns -1 and sets errno on error.
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

func (t *through) Ioctl(request uintptr, argument unsafe.Pointer) error {
	for {
		if _, err := t.call(t.ioctls, t.fd, request, uintptr(argument)); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// mmap maps a plane by the descriptor that the device exports for it, as NVIDIA's samples do (NvBuffer.cpp and
// NvV4l2ElementPlane.cpp), and finds the surface of a picture's plane. The descriptor belongs to the device, which finds
// the surface by it.
func (t *through) mmap(p videodev.PlaneOf, offset int64, length int) ([]byte, error) {
	x := &videodev.ExportBuffer{PlaneOf: p}
	if err := t.Ioctl(videodev.Export, unsafe.Pointer(x)); err != nil {
		return nil, fmt.Errorf("VIDIOC_EXPBUF: %w", err)
	}
	b, err := unix.Mmap(int(x.FD), offset, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil || p.Type == videodev.CaptureMulti { // the samples read coded data without more ado
		return b, err
	}
	surface := new(uintptr)
	if r, _, _ := purego.SyscallN(t.fromFd, uintptr(x.FD), uintptr(unsafe.Pointer(surface))); int32(r) != 0 || *surface == 0 {
		return nil, errors.Join(fmt.Errorf("NvBufSurfaceFromFd: result %d", int32(r)), unix.Munmap(b))
	}
	t.surfaces[&b[0]] = *surface
	return b, nil
}

func (t *through) munmap(b []byte) error {
	delete(t.surfaces, &b[0])
	return unix.Munmap(b)
}

// sync writes the CPU's caches back, as NVIDIA's samples do for each plane before its picture is queued
// (encoder_proc_blocking in video_encode_main.cpp of 01_video_encode). A surface is a batch of one buffer.
func (t *through) sync(plane int, b []byte) error {
	if r, _, _ := purego.SyscallN(t.forDevice, t.surfaces[&b[0]], 0, uintptr(plane)); int32(r) != 0 {
		return fmt.Errorf("plane %d: NvBufSurfaceSyncForDevice: result %d", plane, int32(r))
	}
	return nil
}

func (t *through) nvidia() bool { return true }

func (t *through) wait(bool, time.Duration) error {
	time.Sleep(glance)
	return nil
}

func (t *through) close() error {
	_, err := t.call(t.closes, t.fd)
	return err
}

// Try looks for an encoder of NVIDIA's, and returns its device file, or an error that says why it cannot be used.
func Try() (path string, err error) {
	path = "/dev/" + nvidiaNodes[0]
	if _, err := os.Stat(path); err != nil {
		path = "/dev/" + nvidiaNodes[1]
	}
	n, err := open(path)
	if err != nil {
		return "", err
	}
	e := &Encoder{node: n, path: path}
	return path, errors.Join(e.recognize(), n.close())
}
