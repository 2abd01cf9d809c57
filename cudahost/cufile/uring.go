// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The interface of io_uring (linux/io_uring.h): what of it is used.
const (
	offSQRing = 0
	offSQEs   = 0x10000000

	featSingleMmap = 1 << 0 // since Linux 5.4

	opNop        = 0
	opWriteV     = 2
	opReadFixed  = 4
	opWriteFixed = 5
	opRead       = 22 // since Linux 5.6
	opWrite      = 23

	registerFiles         = 2
	registerFilesUpdate   = 6
	registerBuffers2      = 15 // since Linux 5.13
	registerBuffersUpdate = 16
	registerSparse        = 1 << 0 // since Linux 5.19

	sqeFixedFile = 1 << 0
)

// uringParams is struct io_uring_params.
type uringParams struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFD uint32
	_                                                                      [3]uint32
	sq                                                                     struct {
		head, tail, mask, entries, flags, dropped, array, _ uint32
		_                                                   uint64
	}
	cq struct {
		head, tail, mask, entries, overflow, cqes, flags, _ uint32
		_                                                   uint64
	}
}

// sqe is struct io_uring_sqe.
type sqe struct {
	opcode, flags uint8
	ioprio        uint16
	fd            int32
	off, addr     uint64
	len, rwFlags  uint32
	user          uint64
	bufIndex      uint16
	_             [22]byte
}

// cqe is struct io_uring_cqe.
type cqe struct {
	user  uint64
	res   int32
	flags uint32
}

// Sizes of a uring.
const (
	uringEntries = 256
	uringFiles   = 256  // that may be registered; more are used by their descriptors
	uringBuffers = 1024 // the same of buffers
)

// A uring is an engine that hands transfers to the kernel and is told when they are done (io_uring(7)).
type uring struct {
	fd           int
	file         *os.File // of fd: Go's poller waits for it
	rings, sqMem []byte
	sqes         []sqe
	sqTail       *uint32
	sqArray      []uint32
	sqMask       uint32
	cqHead       *uint32
	cqTail       *uint32
	cqes         []cqe
	cqMask       uint32
	reaper       sync.WaitGroup
	fixedFiles   bool // the kernel has the table
	fixedBuffers bool

	mu       sync.Mutex // of all below
	room     sync.Cond  // a transfer has ended
	inFlight [uringEntries]*transfer
	free     []int
	files    [uringFiles]bool // places of the tables that are taken
	buffers  [uringBuffers]bool
	arg      struct { // what an update points at: in the heap, where nothing moves
		fd     int32
		vector [2]uint64 // struct iovec
	}
}

// newURing makes an io_uring. An error says that the kernel has none, or does not let this process have one.
func newURing() (*uring, error) {
	var p uringParams
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uringEntries, uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, os.NewSyscallError("io_uring_setup", errno)
	}
	u := &uring{fd: int(fd)}
	u.room.L = &u.mu
	if err := unix.SetNonblock(u.fd, true); err != nil { // else the file does not wait by the poller
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(u.fd))
	}
	u.file = os.NewFile(fd, "io_uring")
	if err := u.file.SetReadDeadline(time.Time{}); err != nil { // the poller has no room for it
		return nil, errors.Join(err, u.file.Close())
	}
	if p.features&featSingleMmap == 0 {
		return nil, errors.Join(errors.New("the kernel's io_uring is older than Linux 5.4"), u.file.Close())
	}
	if err := u.mmap(&p); err != nil {
		return nil, errors.Join(err, u.unmap())
	}
	for i := range uringEntries {
		u.free = append(u.free, i)
	}
	none := make([]int32, uringFiles)
	for i := range none {
		none[i] = -1
	}
	u.fixedFiles = u.register(registerFiles, unsafe.Pointer(&none[0]), uringFiles) == nil
	table := rsrcRegister{nr: uringBuffers, flags: registerSparse}
	u.fixedBuffers = u.register(registerBuffers2, unsafe.Pointer(&table), uint32(unsafe.Sizeof(table))) == nil
	conn, err := u.file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, u.unmap())
	}
	u.reaper.Go(func() { u.reap(conn) })
	return u, nil
}

func (u *uring) mmap(p *uringParams) (err error) {
	size := max(p.sq.array+4*p.sqEntries, p.cq.cqes+p.cqEntries*uint32(unsafe.Sizeof(cqe{})))
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	if u.rings, err = unix.Mmap(u.fd, offSQRing, int(size), prot, flags); err != nil {
		return os.NewSyscallError("mmap of the rings", err)
	}
	if u.sqMem, err = unix.Mmap(u.fd, offSQEs, int(p.sqEntries)*int(unsafe.Sizeof(sqe{})), prot, flags); err != nil {
		return os.NewSyscallError("mmap of the submissions", err)
	}
	at := func(offset uint32) unsafe.Pointer { return unsafe.Pointer(&u.rings[offset]) }
	u.sqes = unsafe.Slice((*sqe)(unsafe.Pointer(&u.sqMem[0])), p.sqEntries)
	u.sqTail, u.sqMask = (*uint32)(at(p.sq.tail)), *(*uint32)(at(p.sq.mask))
	u.sqArray = unsafe.Slice((*uint32)(at(p.sq.array)), p.sqEntries)
	u.cqHead, u.cqTail, u.cqMask = (*uint32)(at(p.cq.head)), (*uint32)(at(p.cq.tail)), *(*uint32)(at(p.cq.mask))
	u.cqes = unsafe.Slice((*cqe)(at(p.cq.cqes)), p.cqEntries)
	return nil
}

func (u *uring) unmap() error {
	var errs []error
	for _, m := range [][]byte{u.sqMem, u.rings} {
		if m != nil {
			errs = append(errs, unix.Munmap(m))
		}
	}
	return errors.Join(append(errs, u.file.Close())...)
}

// rsrcRegister is struct io_uring_rsrc_register.
type rsrcRegister struct {
	nr, flags  uint32
	_          uint64
	data, tags uint64
}

// rsrcUpdate is struct io_uring_rsrc_update2.
type rsrcUpdate struct {
	offset, _  uint32
	data, tags uint64
	nr, _      uint32
}

func (u *uring) register(op uintptr, arg unsafe.Pointer, n uint32) error {
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(u.fd), op, uintptr(arg), uintptr(n), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// addFile registers a descriptor, and returns its place in the table; -1: it is used as it is.
func (u *uring) addFile(fd int) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	i := freePlace(u.files[:])
	if !u.fixedFiles || i < 0 || u.setFile(i, fd) != nil {
		return -1
	}
	u.files[i] = true
	return i
}

func (u *uring) setFile(i, fd int) error {
	u.arg.fd = int32(fd)
	update := rsrcUpdate{offset: uint32(i), data: uint64(uintptr(unsafe.Pointer(&u.arg.fd)))}
	return u.register(registerFilesUpdate, unsafe.Pointer(&update), 1)
}

func (u *uring) dropFile(i int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if i >= 0 {
		_ = u.setFile(i, -1) // the descriptor is the caller's to close, which the table holds up otherwise
		u.files[i] = false
	}
}

// addBuffer registers memory, and returns its place in the table; -1: it is used as it is, for instance since the kernel cannot
// pin it.
func (u *uring) addBuffer(base uintptr, size int) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	i := freePlace(u.buffers[:])
	if !u.fixedBuffers || i < 0 || u.setBuffer(i, base, size) != nil {
		return -1
	}
	u.buffers[i] = true
	return i
}

func (u *uring) setBuffer(i int, base uintptr, size int) error {
	u.arg.vector = [2]uint64{uint64(base), uint64(size)}
	update := rsrcUpdate{offset: uint32(i), data: uint64(uintptr(unsafe.Pointer(&u.arg.vector))), nr: 1}
	return u.register(registerBuffersUpdate, unsafe.Pointer(&update), uint32(unsafe.Sizeof(update)))
}

func (u *uring) dropBuffer(i int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if i >= 0 {
		_ = u.setBuffer(i, 0, 0)
		u.buffers[i] = false
	}
}

func freePlace(taken []bool) int {
	for i, t := range taken {
		if !t {
			return i
		}
	}
	return -1
}

// start implements engine.
func (u *uring) start(list []*transfer) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(list) > 0 {
		for len(u.free) == 0 {
			u.room.Wait()
		}
		n := min(len(list), len(u.free))
		for _, t := range list[:n] {
			i := u.free[len(u.free)-1]
			u.free, u.inFlight[i] = u.free[:len(u.free)-1], t
			u.push(u.entry(t, i))
		}
		u.enter(n)
		list = list[n:]
	}
}

// entry is the submission of t.
func (u *uring) entry(t *transfer, user int) sqe {
	e := sqe{opcode: opRead, fd: int32(t.fd), off: uint64(t.off), addr: uint64(t.addr), len: uint32(t.n), user: uint64(user)}
	if t.fdPlace >= 0 {
		e.fd, e.flags = int32(t.fdPlace), sqeFixedFile
	}
	if t.write {
		e.opcode = opWrite
	}
	if t.vector != nil { // the kernel copies it at once (IORING_FEAT_SUBMIT_STABLE, since Linux 5.5)
		e.opcode, e.addr, e.len = opWriteV, uint64(uintptr(unsafe.Pointer(&t.vector[0]))), uint32(len(t.vector))
	}
	if t.place >= 0 {
		e.opcode, e.bufIndex = opReadFixed, uint16(t.place)
		if t.write {
			e.opcode = opWriteFixed
		}
	}
	return e
}

// push puts an entry into the submission queue, which has room for all that may be in flight.
func (u *uring) push(e sqe) {
	tail := *u.sqTail // only we write it
	at := tail & u.sqMask
	u.sqes[at], u.sqArray[at] = e, at
	atomic.StoreUint32(u.sqTail, tail+1)
}

// enter tells the kernel of n entries. It takes them all, or, for want of memory, later.
func (u *uring) enter(n int) {
	for n > 0 {
		took, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(u.fd), uintptr(n), 0, 0, 0, 0)
		switch errno {
		case 0:
			n -= int(took)
		case unix.EINTR, unix.EAGAIN, unix.EBUSY:
		default:
			panic(fmt.Sprintf("io_uring_enter: %v", errno)) // the ring is ours, and open
		}
	}
}

// wakeUser is that of the entry that ends the reaper.
const wakeUser = ^uint64(0)

// reap ends transfers as the kernel says that they are done, until close. It waits by Go's poller. While a thread waits in a system call,
// a thread of Go's runtime wakes every 20 µs to look after it; that took a sixth of a recording's CPU.
func (u *uring) reap(conn syscall.RawConn) {
	if err := conn.Read(func(uintptr) bool { return u.drain() }); err != nil {
		panic(fmt.Sprintf("io_uring: %v", err)) // the ring is ours, and open
	}
}

// drain ends what is done, and says whether that is all, for ever.
func (u *uring) drain() (closed bool) {
	head := *u.cqHead // only we write it
	for tail := atomic.LoadUint32(u.cqTail); head != tail && !closed; head++ {
		c := u.cqes[head&u.cqMask]
		if closed = c.user == wakeUser; !closed {
			u.end(int(c.user), c.res)
		}
	}
	atomic.StoreUint32(u.cqHead, head)
	return closed
}

func (u *uring) end(i int, res int32) {
	u.mu.Lock()
	t := u.inFlight[i]
	u.inFlight[i] = nil
	u.free = append(u.free, i)
	u.mu.Unlock()
	u.room.Signal()
	if res < 0 {
		t.done(0, unix.Errno(-res))
		return
	}
	t.done(int(res), 0)
}

// close implements engine: nothing is in flight any more.
func (u *uring) close() error {
	u.mu.Lock()
	u.push(sqe{opcode: opNop, user: wakeUser})
	u.enter(1)
	u.mu.Unlock()
	u.reaper.Wait()
	return u.unmap()
}
