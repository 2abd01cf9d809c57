// SPDX-License-Identifier: Apache-2.0

package tegra

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// driver contains the operations of an open device of the kernel module. Their errors wrap a *uapi.Error, an errno of
// mmap, or os.ErrClosed.
type driver interface {
	info() (uapi.Info, error)
	region(index int) (uapi.Region, error)
	pin(p *uapi.Pin, segments []uapi.Segment) error
	query(q *uapi.Query, segments []uapi.Segment) error
	put(handle uint32) error
	alloc(a *uapi.Alloc) error
	setEvent(kind, index uint32, eventfd int) error
	setHalt(ops []uapi.HaltOp) error
	control(op uint32, generation uint64) (uint64, error)
	mmap(offset uint64, size int) ([]byte, error)
	close() error
}

// file is the driver of an open character device. The device is closed when Close was called and the calls in progress
// have ended.
type file struct{ *os.File }

// openFile opens a device of the module. If there is none, the error says what is missing.
func openFile(path string) (file, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return file{}, fmt.Errorf("%w: %s is not there%s", ErrNoDevice, path, presentDevices())
	case errors.Is(err, unix.EPERM):
		return file{}, fmt.Errorf("%w: %s: %w: no IOMMU restricts its function to the memory given to it: "+
			"boot with a strict one (iommu.passthrough=0 iommu.strict=1), or, if you are the machine's only user, "+
			"load the module with allow_unsafe=1 and run with CAP_SYS_RAWIO", ErrNoDevice, path, err)
	case errors.Is(err, fs.ErrPermission):
		return file{}, fmt.Errorf("%w: %s: %w: run as root, or give the service's user the file by a udev rule", ErrNoDevice, path, err)
	case errors.Is(err, unix.EBUSY):
		return file{}, fmt.Errorf("%w: %s: %s", ErrInUse, path, inUse(path))
	case errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO):
		return file{}, fmt.Errorf("%w: %s: %w: its function has gone: run tegracast doctor, which says how to get it back", ErrNoDevice, path, err)
	case err != nil:
		return file{}, fmt.Errorf("%w: %s: %w: name a device file such as %s", ErrNoDevice, path, err, DefaultDevice)
	}
	return file{os.NewFile(uintptr(fd), path)}, nil
}

// presentDevices returns the devices that exist instead, or how to get one, for an error message.
func presentDevices() string {
	if list, _ := filepath.Glob("/dev/tegra_p2p*"); len(list) > 0 {
		return fmt.Sprintf(", present are %v", list)
	}
	if _, err := os.Stat("/sys/module/tegra_p2p"); err != nil {
		return ": load the module (modprobe tegra_p2p) and bind the function to it (tegracast bind 0000:BB:DD.F)"
	}
	return ": bind the function to the module (tegracast bind 0000:BB:DD.F, which says whether another driver has it)"
}

// withFD passes the descriptor to call, and keeps it open during the call. The error wraps os.ErrClosed if f is closed.
func (f file) withFD(call func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	if err := raw.Control(func(fd uintptr) { result = call(int(fd)) }); err != nil {
		return fmt.Errorf("%w: %w", os.ErrClosed, err) // the only possible reason, as an error that callers can recognise
	}
	return result
}

func (f file) info() (info uapi.Info, err error) {
	err = f.withFD(func(fd int) (err error) { info, err = uapi.GetInfo(fd); return err })
	return info, err
}

func (f file) region(index int) (r uapi.Region, err error) {
	err = f.withFD(func(fd int) (err error) { r, err = uapi.GetRegion(fd, index); return err })
	return r, err
}

func (f file) pin(p *uapi.Pin, segments []uapi.Segment) error {
	return f.withFD(func(fd int) error { return uapi.DoPin(fd, p, segments) })
}

func (f file) query(q *uapi.Query, segments []uapi.Segment) error {
	return f.withFD(func(fd int) error { return uapi.DoQuery(fd, q, segments) })
}

func (f file) put(handle uint32) error {
	return f.withFD(func(fd int) error { return uapi.DoPut(fd, handle) })
}

func (f file) alloc(a *uapi.Alloc) error {
	return f.withFD(func(fd int) error { return uapi.DoAlloc(fd, a) })
}

func (f file) setEvent(kind, index uint32, eventfd int) error {
	return f.withFD(func(fd int) error { return uapi.SetEvent(fd, kind, index, eventfd) })
}

func (f file) setHalt(ops []uapi.HaltOp) error {
	return f.withFD(func(fd int) error { return uapi.SetHalt(fd, ops) })
}

func (f file) control(op uint32, generation uint64) (now uint64, err error) {
	err = f.withFD(func(fd int) (err error) { now, err = uapi.DoControl(fd, op, generation); return err })
	return now, err
}

func (f file) mmap(offset uint64, size int) (b []byte, err error) {
	err = f.withFD(func(fd int) (err error) {
		b, err = unix.Mmap(fd, int64(offset), size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		return err
	})
	return b, err
}

func (f file) close() error { return f.Close() }
