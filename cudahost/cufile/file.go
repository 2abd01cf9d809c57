// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// A File is a registered file (CUfileHandle_t). It has up to two descriptors: one with O_DIRECT for aligned transfers,
// and one without.
type File struct {
	driver   *Driver
	back     backend  // has opened it
	caller   *os.File // kept, so that the garbage collector does not close it
	fd       int      // of caller
	direct   opened
	buffered opened
	handle   uintptr        // libcufile's
	align    int            // alignment of offset and size of a direct transfer, in bytes
	memory   int            // alignment of the memory of a direct transfer, in bytes
	users    sync.WaitGroup // calls that use the descriptors
}

// opened is a descriptor of a file.
type opened struct {
	fd    int  // -1: none
	own   bool // opened by this package, which must close it
	place int  // in the engine's table; -1: none
}

// badFlags are the flags of open(2) that §4.2.1 refuses. O_NOCTTY is missing because the kernel does not keep it.
var badFlags = map[int]string{
	unix.O_APPEND: "O_APPEND", unix.O_NONBLOCK: "O_NONBLOCK", unix.O_NOATIME: "O_NOATIME", unix.O_DIRECTORY: "O_DIRECTORY",
	unix.O_NOFOLLOW: "O_NOFOLLOW", unix.O_TMPFILE &^ unix.O_DIRECTORY: "O_TMPFILE",
}

// RegisterFile registers an open file (cuFileHandleRegister, §4.2.1), opened with or without O_DIRECT. The caller must
// close f, after Deregister.
//
// Errors wrap InvalidValue, InvalidFileType (neither a regular file nor a block device), InvalidFileOpenFlag,
// HandleAlreadyRegistered, NewFDFailed, DriverNotInitialized, DriverClosing, or libcufile's error.
func (d *Driver) RegisterFile(f *os.File) (*File, error) {
	const call = "cuFileHandleRegister"
	if err := d.use(call); err != nil {
		return nil, err
	}
	defer d.done()
	if f == nil {
		return nil, &Error{Call: call, What: "no file", Status: InvalidValue}
	}
	file, err := d.openFile(f)
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			e.Call, e.What = call, f.Name()
		}
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.files[file.fd] != nil {
		return nil, errors.Join(&Error{Call: call, What: f.Name(), Status: HandleAlreadyRegistered}, file.back.closeFile(file))
	}
	d.files[file.fd] = file
	return file, nil
}

// openFile checks a file, and lets the back end open it.
func (d *Driver) openFile(f *os.File) (*File, error) {
	fd := int(f.Fd())
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return nil, &Error{Status: InvalidValue, Why: os.NewSyscallError("fcntl", err)}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &Error{Status: InvalidValue, Why: os.NewSyscallError("fstat", err)}
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFREG && kind != unix.S_IFBLK {
		return nil, &Error{Status: InvalidFileType}
	}
	for bit, word := range badFlags {
		if flags&bit != 0 {
			return nil, &Error{Status: InvalidFileOpenFlag, Why: errors.New(word)}
		}
	}
	file := &File{driver: d, back: d.current(), caller: f, fd: fd, direct: opened{fd: -1, place: -1}, buffered: opened{fd: -1, place: -1}}
	if err := file.back.openFile(file, flags, st.Dev); err != nil {
		return nil, err
	}
	return file, nil
}

// openFile implements backend. It opens a second descriptor of the file, with or without O_DIRECT, if that is needed.
func (c *compat) openFile(file *File, flags int, dev uint64) (err error) {
	file.align, file.memory = alignment(file.fd)
	if flags&unix.O_DIRECT != 0 {
		file.direct.fd = file.fd
		if file.buffered.fd, err = reopen(file.fd, flags&^unix.O_DIRECT); err != nil {
			return &Error{Status: NewFDFailed, Why: err}
		}
		file.buffered.own = true
	} else {
		file.buffered.fd = file.fd
		if c.driver.wantsDirect(file, flags, dev) {
			if dfd, err := reopen(file.fd, flags|unix.O_DIRECT); err == nil { // otherwise the file system does not support it
				file.direct = opened{fd: dfd, own: true}
			}
		}
	}
	for _, o := range []*opened{&file.direct, &file.buffered} {
		if o.fd >= 0 {
			o.place = c.engine.addFile(o.fd)
		}
	}
	return nil
}

// reopen opens a file again with the access mode, O_DIRECT, O_SYNC and O_DSYNC of flags.
func reopen(fd, flags int) (int, error) {
	const kept = unix.O_ACCMODE | unix.O_DIRECT | unix.O_SYNC | unix.O_DSYNC
	n, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), flags&kept|unix.O_CLOEXEC, 0)
	return n, os.NewSyscallError("open", err)
}

// pageSize is the minimum alignment of direct transfers in a file. If a page of the page cache is written partly through
// the cache and partly around it, the kernel takes this for damage (EIO at the next fsync).
const pageSize = 4096

// alignment returns the alignment of a file's direct transfers in bytes, in the file (at least pageSize) and in memory:
// powers of two. Both are pageSize if the kernel does not report them, as before Linux 6.1.
func alignment(fd int) (offset, memory int) {
	var x unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &x); err != nil || x.Mask&unix.STATX_DIOALIGN == 0 || x.Dio_mem_align == 0 {
		return pageSize, pageSize
	}
	return max(pageSize, int(x.Dio_offset_align)), int(x.Dio_mem_align)
}

// Deregister ends a registration (cuFileHandleDeregister, §4.2.2) after the transfers that use the file have ended. The
// document's function returns nothing, so the error is only for logging. It wraps HandleNotRegistered,
// DriverNotInitialized or DriverClosing, or is that of closing a descriptor.
func (f *File) Deregister() error {
	const call = "cuFileHandleDeregister"
	d := f.driver
	if err := d.use(call); err != nil {
		return err
	}
	defer d.done()
	d.mu.Lock()
	registered := d.files[f.fd] == f
	if registered {
		delete(d.files, f.fd)
	}
	d.mu.Unlock()
	if !registered {
		return &Error{Call: call, What: f.caller.Name(), Status: HandleNotRegistered}
	}
	f.users.Wait()
	return f.back.closeFile(f)
}

// closeFile closes what openFile has opened.
func (c *compat) closeFile(f *File) error {
	var errs []error
	for _, o := range []*opened{&f.direct, &f.buffered} {
		c.engine.dropFile(o.place)
		if o.own {
			errs = append(errs, os.NewSyscallError("close", unix.Close(o.fd)))
		}
		*o = opened{fd: -1, place: -1}
	}
	return errors.Join(errs...)
}

// hold keeps the descriptors open until f.users.Done is called. An error wraps HandleNotRegistered.
func (f *File) hold(call string) error {
	f.driver.mu.Lock()
	defer f.driver.mu.Unlock()
	if f.driver.files[f.fd] != f {
		return &Error{Call: call, What: f.caller.Name(), Status: HandleNotRegistered}
	}
	f.users.Add(1)
	return nil
}
