// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"
)

// LibraryName is the name of libcufile's shared library.
const LibraryName = "libcufile.so.0"

// ErrNoLibrary is wrapped by errors that say why libcufile is not available.
var ErrNoLibrary = errors.New("no libcufile")

// A Context runs functions on a thread with a CUDA context. *cudahost.Device implements it.
type Context interface {
	Do(f func() error) error
}

// symbol is a function of libcufile (cufile.h).
type symbol int

const (
	symDriverOpen symbol = iota
	symDriverClose
	symDriverGetProperties
	symDriverSetPollMode
	symDriverSetMaxDirectIOSize
	symDriverSetMaxCacheSize
	symDriverSetMaxPinnedMemSize
	symHandleRegister
	symHandleDeregister
	symRead
	symWrite
	symBufRegister
	symBufDeregister
	symReadAsync
	symWriteAsync
	symbolCount
)

// symbolNames are the names of cufile.h. cuFileDriverClose is a macro there.
var symbolNames = [symbolCount]string{
	symDriverOpen:                "cuFileDriverOpen",
	symDriverClose:               "cuFileDriverClose_v2",
	symDriverGetProperties:       "cuFileDriverGetProperties",
	symDriverSetPollMode:         "cuFileDriverSetPollMode",
	symDriverSetMaxDirectIOSize:  "cuFileDriverSetMaxDirectIOSize",
	symDriverSetMaxCacheSize:     "cuFileDriverSetMaxCacheSize",
	symDriverSetMaxPinnedMemSize: "cuFileDriverSetMaxPinnedMemSize",
	symHandleRegister:            "cuFileHandleRegister",
	symHandleDeregister:          "cuFileHandleDeregister",
	symRead:                      "cuFileRead",
	symWrite:                     "cuFileWrite",
	symBufRegister:               "cuFileBufRegister",
	symBufDeregister:             "cuFileBufDeregister",
	symReadAsync:                 "cuFileReadAsync",
	symWriteAsync:                "cuFileWriteAsync",
}

// A library is libcufile with its driver open.
type library struct {
	driver  *Driver
	context Context
	symbols [symbolCount]uintptr
	errno   uintptr // __errno_location of the C library
}

// drvProps is CUfileDrvProps_t of cufile.h.
type drvProps struct {
	major, minor               uint32
	pollThreshold, maxDirectIO uint64
	status, control            uint32
	features                   uint32
	deviceCache, perBuffer     uint32
	pinned, _, _               uint32
}

// Bits of drvProps.control (CUfileDriverControlFlags).
const (
	controlPoll   = 1 << 0
	controlCompat = 1 << 1
)

// openLibrary opens libcufile and its driver, and applies the settings that differ from the library's.
func openLibrary(d *Driver, c *Config) (*library, error) {
	l := &library{driver: d, context: c.Device}
	if c.Device == nil {
		return nil, &Error{Call: "cuFileDriverOpen", What: "no device", Status: InvalidValue}
	}
	handle, err := purego.Dlopen(c.Library, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("%w: GPUDirect Storage is not installed (libcufile of the CUDA toolkit or of JetPack): %w", ErrNoLibrary, err)
	}
	for i, name := range symbolNames {
		if l.symbols[i], err = purego.Dlsym(handle, name); err != nil {
			return nil, fmt.Errorf("%w: it is older than CUDA 12.2, or another library: %w", ErrNoLibrary, err)
		}
	}
	if l.errno, err = purego.Dlsym(purego.RTLD_DEFAULT, "__errno_location"); err != nil {
		return nil, fmt.Errorf("%w: the C library is not glibc: %w", ErrNoLibrary, err)
	}
	if err := l.call(symDriverOpen); err != nil {
		return nil, err
	}
	if err := l.settle(c.Settings); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// settle applies the settings that differ from the library's. It returns an error if compatibility mode is needed and
// the settings forbid it.
func (l *library) settle(set *Settings) error {
	p, props, err := l.ask()
	if err != nil {
		return err
	}
	if props.major == 0 && !set.AllowCompat {
		return notAllowed(set.Path)
	}
	var errs []error
	for _, s := range []struct {
		call   string
		kb, is uint64
	}{
		{"cuFileDriverSetMaxDirectIOSize", set.MaxDirectIO, p.MaxDirectIO},
		{"cuFileDriverSetMaxCacheSize", set.MaxDeviceCache, p.MaxDeviceCache},
		{"cuFileDriverSetMaxPinnedMemSize", set.MaxPinned, p.MaxPinned},
	} {
		if s.kb != s.is {
			errs = append(errs, l.set(s.call, false, s.kb))
		}
	}
	if set.Poll != p.Poll || set.PollMax != p.PollThreshold {
		errs = append(errs, l.set("cuFileDriverSetPollMode", set.Poll, set.PollMax))
	}
	return errors.Join(errs...)
}

// call calls a function that returns a CUfileError_t: two ints in one register. Pointers may be converted to uintptr in
// the argument list.
//
//go:uintptrescapes
func (l *library) call(f symbol, args ...uintptr) error {
	var result uintptr
	err := l.context.Do(func() error {
		result, _, _ = purego.SyscallN(l.symbols[f], args...)
		return nil
	})
	status, cuda := Status(int32(result)), int32(uint64(result)>>32)
	switch {
	case err != nil:
		return &Error{Call: symbolNames[f], Status: CUDADriverError, Why: err}
	case status == Success:
		return nil
	case status < 0: // for an invalid cufile.json
		return &Error{Call: symbolNames[f], Why: unix.Errno(-status)}
	case status == CUDADriverError:
		return &Error{Call: symbolNames[f], Status: status, Why: fmt.Errorf("CUresult %d", cuda)}
	}
	return &Error{Call: symbolNames[f], Status: status}
}

func (l *library) close() error { return l.call(symDriverClose) }

func (l *library) properties() (Properties, error) {
	p, _, err := l.ask()
	return p, err
}

// ask returns the library's properties.
func (l *library) ask() (Properties, *drvProps, error) {
	p := &drvProps{}
	err := l.call(symDriverGetProperties, uintptr(unsafe.Pointer(p)))
	return Properties{
		Poll: p.control&controlPoll != 0, PollThreshold: p.pollThreshold, MaxDirectIO: p.maxDirectIO,
		AllowCompat: p.control&controlCompat != 0, MaxDeviceCache: uint64(p.deviceCache), MaxPinned: uint64(p.pinned),
		Features: Features(p.features),
	}, p, err
}

// mostKB is the limit of pinned memory in KiB that replaces "no limit", which libcufile refuses. It is libcufile's
// default and the largest size known to work.
const mostKB = 32 << 20

func (l *library) set(call string, poll bool, kb uint64) error {
	if kb == maxKB {
		kb = mostKB
	}
	switch call {
	case symbolNames[symDriverSetPollMode]:
		on := uintptr(0)
		if poll {
			on = 1
		}
		return l.call(symDriverSetPollMode, on, uintptr(kb))
	case symbolNames[symDriverSetMaxDirectIOSize]:
		return l.call(symDriverSetMaxDirectIOSize, uintptr(kb))
	case symbolNames[symDriverSetMaxCacheSize]:
		return l.call(symDriverSetMaxCacheSize, uintptr(kb))
	}
	return l.call(symDriverSetMaxPinnedMemSize, uintptr(kb))
}

// descr is CUfileDescr_t.
type descr struct {
	kind   int32
	_      int32
	handle uint64 // a union: the descriptor is in the first four bytes
	ops    uintptr
}

// errFileSystem explains libcufile's HandleNotRegistered at the registration of a file.
var errFileSystem = errors.New("libcufile does not support its file system (tmpfs, for example), or cannot find out which it is: it needs udev's /run/udev, " +
	"which containers must be given")

const opaqueFD = 1 // CU_FILE_HANDLE_TYPE_OPAQUE_FD

func (l *library) openFile(f *File, _ int, _ uint64) error {
	d := &descr{kind: opaqueFD, handle: uint64(f.fd)}
	err := l.call(symHandleRegister, uintptr(unsafe.Pointer(&f.handle)), uintptr(unsafe.Pointer(d)))
	if e := (*Error)(nil); errors.As(err, &e) && e.Status == HandleNotRegistered {
		e.Why = errFileSystem
	}
	return err
}

func (l *library) closeFile(f *File) error {
	return l.context.Do(func() error {
		purego.SyscallN(l.symbols[symHandleDeregister], f.handle) // it returns nothing
		return nil
	})
}

func (l *library) addBuffer(base uintptr, size int) (int, error) {
	return -1, l.call(symBufRegister, base, uintptr(size), 0)
}

func (l *library) dropBuffer(r *region) error { return l.call(symBufDeregister, r.base) }

// transfer implements backend. It reads errno on the thread that has called the library.
func (l *library) transfer(call string, op Op) (n int, err error) {
	if _, err := l.driver.check(call, op); err != nil || op.Size == 0 {
		return 0, err
	}
	f, errno := symRead, unix.Errno(0)
	if op.Write {
		f = symWrite
	}
	if err := l.context.Do(func() error {
		r, _, _ := purego.SyscallN(l.symbols[f], op.File.handle, op.Base, uintptr(op.Size), uintptr(op.FileOffset), uintptr(op.Offset))
		if n = int(r); n == -1 {
			at, _, _ := purego.SyscallN(l.errno)
			errno = unix.Errno(**(**int32)(unsafe.Pointer(&at)))
		}
		return nil
	}); err != nil {
		return 0, &Error{Call: call, What: op.File.caller.Name(), Status: CUDADriverError, Why: err}
	}
	if n == -1 {
		n = -int(errno) // may be a Status
	}
	return moved(call, op.File, n)
}

// inBatch implements backend, with one call per transfer. The library's own batches are not used, because with host
// memory and files opened with O_DIRECT they write wrong bytes (see the package's comment).
func (l *library) inBatch(call string, op Op) (int, error) { return l.transfer(call, op) }

func (l *library) together([]Op) int { return 1 }
func (l *library) gather([]Op) bool  { return false }

// moved converts the result of a transfer: bytes, or the negative of a Status or an errno.
func moved(call string, f *File, n int) (int, error) {
	switch {
	case n >= 0:
		return n, nil
	case n < -baseError:
		return 0, &Error{Call: call, What: f.caller.Name(), Status: Status(-n)}
	}
	return 0, &Error{Call: call, What: f.caller.Name(), Why: unix.Errno(-n)}
}

// async implements backend. The call of done follows the transfer in the stream. Registered streams are not registered
// with the library, because it then loses transfers (see the package's comment).
func (l *library) async(_ string, s Stream, op Op, a *Async, _ StreamFlags, done func()) error {
	f := symReadAsync
	if op.Write {
		f = symWriteAsync
	}
	if err := l.call(f, op.File.handle, op.Base, uintptr(unsafe.Pointer(&a.Size)), uintptr(unsafe.Pointer(&a.FileOffset)),
		uintptr(unsafe.Pointer(&a.Offset)), uintptr(unsafe.Pointer(&a.result)), s.Handle()); err != nil {
		return err
	}
	return s.Call(done)
}
