// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Read reads size bytes of the file at fileOffset into the memory at base + offset (cuFileRead, §4.2.3), and returns the
// number of bytes read, which is less than size at the end of the file. Any alignment works; aligned transfers take the
// fastest path. base is that of RegisterBuffer, or any host memory that does not move.
//
// Errors wrap InvalidValue, HandleNotRegistered, InvalidMappingRange, DriverNotInitialized, DriverClosing, or the
// kernel's errno. Then the number counts the bytes before the first one that could not be read.
func (f *File) Read(base uintptr, size int, fileOffset, offset int64) (int, error) {
	return f.move("cuFileRead", Op{File: f, Base: base, Size: size, FileOffset: fileOffset, Offset: offset})
}

// Write writes size bytes of the memory at base + offset to the file at fileOffset (cuFileWrite, §4.2.4), with the
// rules of Read. The bytes are sure to be on the disk only after fsync(2), unless the file was opened with O_SYNC or
// O_DSYNC.
func (f *File) Write(base uintptr, size int, fileOffset, offset int64) (int, error) {
	return f.move("cuFileWrite", Op{File: f, Write: true, Base: base, Size: size, FileOffset: fileOffset, Offset: offset})
}

func (f *File) move(call string, op Op) (int, error) {
	d := f.driver
	if err := d.use(call); err != nil {
		return 0, err
	}
	defer d.done()
	if err := f.hold(call); err != nil {
		return 0, err
	}
	defer f.users.Done()
	return f.transfer(call, op)
}

// transfer performs a transfer of a held file.
func (f *File) transfer(call string, op Op) (int, error) {
	return f.back.transfer(call, op)
}

// transfer implements backend.
func (c *compat) transfer(call string, op Op) (int, error) {
	d := c.driver
	set := d.settings()
	list, err := d.pieces(call, op, &set)
	if err != nil {
		return 0, err
	}
	m := &movement{call: call, op: op, pieces: list, ended: make(chan struct{})}
	if len(list) == 0 {
		return 0, nil
	}
	if p := &list[0]; len(list) == 1 {
		p.alone(d, set.Poll && uint64(op.Size) <= set.PollMax<<10)
		return m.result()
	}
	m.moveAll(c)
	return m.result()
}

// A movement is an operation split into pieces.
type movement struct {
	call   string
	op     Op
	pieces []piece
	left   atomic.Int32  // number of pieces whose transfers have not ended
	ended  chan struct{} // closed when left is 0
}

// moveAll moves all pieces and waits for them. It first writes the pieces that go through the page cache, because the
// kernel reports damage if a page of the cache becomes dirty during a direct write next to it.
func (m *movement) moveAll(c *compat) {
	var list []*transfer
	for i := range m.pieces {
		p := &m.pieces[i]
		if m.op.Write && p.fd == m.op.File.buffered.fd {
			p.alone(c.driver, false)
			continue
		}
		p.done = func(n int, errno unix.Errno) {
			if p.goesOn(n, errno) && !c.driver.closing.Load() {
				go c.engine.start([]*transfer{&p.transfer}) // in another goroutine, because it may wait for others to complete
				return
			}
			if m.left.Add(-1) == 0 {
				close(m.ended)
			}
		}
		list = append(list, &p.transfer)
	}
	if len(list) == 0 {
		return
	}
	m.left.Store(int32(len(list)))
	c.engine.start(list)
	<-m.ended // ends: with the transfers, as calls of the kernel do
}

// result returns the number of bytes moved without a gap, and an error if that is not everything, except at the end of
// the file.
func (m *movement) result() (total int, err error) {
	for i := range m.pieces {
		p := &m.pieces[i]
		total += p.moved
		switch {
		case p.errno != 0:
			return total, &Error{Call: m.call, What: m.op.File.caller.Name(), Why: p.errno}
		case p.moved < p.size && m.op.File.driver.closing.Load():
			return total, &Error{Call: m.call, What: m.op.File.caller.Name(), Status: DriverClosing}
		case p.moved < p.size:
			return total, nil
		}
	}
	return total, nil
}

// A piece is a part of an operation on one descriptor.
type piece struct {
	transfer
	file  *File
	size  int // total bytes; transfer.n is the rest
	moved int
	errno unix.Errno
}

// alone moves the piece on the caller's thread, until it is done or the driver is being closed.
func (p *piece) alone(d *Driver, poll bool) {
	for p.goesOn(p.call(poll)) && !d.closing.Load() {
	}
}

// goesOn handles the result of a call, and reports whether another call must follow. What a direct call cannot do, for
// instance with memory that the kernel cannot pin, is repeated without O_DIRECT (§2.3, -ENOTSUP).
func (p *piece) goesOn(n int, errno unix.Errno) bool {
	direct := p.fd == p.file.direct.fd
	switch {
	case errno == unix.EINTR:
		return true
	case errno != 0 && (direct || p.transfer.place >= 0):
		if errno == unix.EINVAL || errno == unix.EOPNOTSUPP || errno == unix.EFAULT {
			p.through()
			return true
		}
		p.errno = errno
		return false
	case errno != 0:
		p.errno = errno
		return false
	}
	p.moved += n
	p.addr, p.off, p.n = p.addr+uintptr(n), p.off+int64(n), p.n-n
	if n == 0 || p.n == 0 {
		return false
	}
	if direct && p.n%p.file.align != 0 { // a direct call ends this way at the end of the file or the disk
		p.through()
		return p.write
	}
	return true
}

// through makes the rest of the piece go through the page cache.
func (p *piece) through() {
	p.fd, p.fdPlace, p.place = p.file.buffered.fd, p.file.buffered.place, -1
}

// check refuses ill-formed operations, and returns the place of the operation's memory in the engine's table, or -1 if
// it is not registered.
func (d *Driver) check(call string, op Op) (place int, err error) {
	if op.Base == 0 || op.Size < 0 || op.Offset < 0 || op.FileOffset < 0 || op.FileOffset+int64(op.Size) < 0 {
		return -1, &Error{
			Call: call, What: op.File.caller.Name(), Status: InvalidValue,
			Why: fmt.Errorf("%d bytes at %#x, offset %d, offset in the file %d", op.Size, op.Base, op.Offset, op.FileOffset),
		}
	}
	return d.place(call, op.Base, op.Size, op.Offset)
}

// pieces splits an operation: an aligned middle for O_DIRECT, if the file, the memory and the settings permit it, in
// pieces of the maximum size, and the parts before and after it for the page cache.
func (d *Driver) pieces(call string, op Op, set *Settings) (list []piece, err error) {
	f := op.File
	place, err := d.check(call, op)
	if err != nil {
		return nil, err
	}
	addr, off, left := op.Base+uintptr(op.Offset), op.FileOffset, op.Size
	add := func(o *opened, n int) {
		for n > 0 {
			now := min(n, int(set.MaxDirectIO)<<10)
			t := transfer{fd: o.fd, fdPlace: o.place, write: op.Write, addr: addr, place: place, n: now, off: off}
			list = append(list, piece{transfer: t, file: f, size: now})
			addr, off, left, n = addr+uintptr(now), off+int64(now), left-now, n-now
		}
	}
	align := int64(f.align)
	head := int((align - off%align) % align)
	unaligned := (addr+uintptr(head))%uintptr(f.memory) != 0
	if f.direct.fd < 0 || unaligned || op.Write && set.UnalignedWrites && (off|int64(left))%pageSize != 0 {
		add(&f.buffered, left)
		return list, nil
	}
	add(&f.buffered, min(left, head))
	add(&f.direct, left&^(f.align-1))
	add(&f.buffered, left)
	return list, nil
}

// Sync waits until everything written is on the disk (fdatasync(2), §4.2.4).
func (f *File) Sync() error {
	const call = "fdatasync"
	d := f.driver
	if err := d.use(call); err != nil {
		return err
	}
	defer d.done()
	if err := f.hold(call); err != nil {
		return err
	}
	defer f.users.Done()
	return os.NewSyscallError(call, unix.Fdatasync(f.fd))
}
