// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The parts of the io_uring interface (linux/io_uring.h) that are used.
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
	uringEntries = 256  // maximum number of transfers in flight
	uringFiles   = 256  // maximum number of registered files; others are used by their descriptors
	uringBuffers = 1024 // maximum number of registered buffers
)

// A uring is an engine that passes transfers to the kernel and is notified of their completion (io_uring(7)). The
// kernel completes a transfer on the thread that has submitted it, and not while that thread is in a system call that
// cannot be interrupted. All are therefore submitted by a thread that does nothing else: on another one of Go's
// threads, a transfer could depend on the call of another goroutine on another disk, which may hang.
type uring struct {
	fd           int
	file         *os.File // of fd, for waiting by Go's poller
	rings, sqMem []byte
	sqes         []sqe
	sqTail       *uint32
	sqArray      []uint32
	sqMask       uint32
	cqHead       *uint32
	cqTail       *uint32
	cqes         []cqe
	cqMask       uint32
	queue        chan []*transfer // to be submitted
	ends         sync.WaitGroup   // of the submitter and the reaper
	fixedFiles   bool             // the kernel supports the table of files
	fixedBuffers bool             // the kernel supports the table of buffers

	mu       sync.Mutex              // guards the fields below
	room     sync.Cond               // signalled when a transfer has ended
	inFlight [uringEntries]*transfer // indexed by the user data of their entries
	free     []int                   // unused indexes of inFlight
	files    [uringFiles]bool        // used places of the tables
	buffers  [uringBuffers]bool
	arg      struct { // arguments of an update, on the heap, where they do not move
		fd     int32
		vector [2]uint64 // struct iovec
	}
}

// newURing opens an io_uring. It returns an error if the kernel has none, has one older than Linux 5.4's, or denies it
// to this process.
func newURing() (*uring, error) {
	var p uringParams
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uringEntries, uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, os.NewSyscallError("io_uring_setup", errno)
	}
	u := &uring{fd: int(fd), queue: make(chan []*transfer)}
	u.room.L = &u.mu
	if err := unix.SetNonblock(u.fd, true); err != nil { // otherwise the file would not use the poller
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(u.fd))
	}
	u.file = os.NewFile(fd, "io_uring")
	if err := u.file.SetReadDeadline(time.Time{}); err != nil { // fails if the poller does not support it
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
	u.ends.Go(u.submit)
	u.ends.Go(func() { u.reap(conn) })
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

// addFile registers a descriptor and returns its place in the table, or -1 if it is used unregistered.
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
		_ = u.setFile(i, -1) // otherwise the table would keep the caller's descriptor open
		u.files[i] = false
	}
}

// addBuffer registers memory and returns its place in the table, or -1 if it is used unregistered, for instance because
// the kernel cannot pin it.
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
func (u *uring) start(list []*transfer) { u.queue <- list }

// submit submits transfers until close.
func (u *uring) submit() {
	runtime.LockOSThread()      // the thread ends with submit
	for list := range u.queue { // ends: with close
		for len(list) > 0 {
			n := u.lay(list)
			u.enter(n)
			list = list[n:]
		}
	}
	u.push(sqe{opcode: opNop, user: wakeUser})
	u.enter(1)
}

// lay puts the first transfers into the submission queue, as many as there is room for: at least one, for which it may
// wait.
func (u *uring) lay(list []*transfer) (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.free) == 0 {
		u.room.Wait()
	}
	n = min(len(list), len(u.free))
	for _, t := range list[:n] {
		i := u.free[len(u.free)-1]
		u.free, u.inFlight[i] = u.free[:len(u.free)-1], t
		u.push(u.entry(t, i))
	}
	return n
}

// entry returns the submission of t.
func (u *uring) entry(t *transfer, user int) sqe {
	e := sqe{opcode: opRead, fd: int32(t.fd), off: uint64(t.off), addr: uint64(t.addr), len: uint32(t.n), user: uint64(user)}
	if t.fdPlace >= 0 {
		e.fd, e.flags = int32(t.fdPlace), sqeFixedFile
	}
	if t.write {
		e.opcode = opWrite
	}
	if t.vector != nil { // the kernel copies it during submission (IORING_FEAT_SUBMIT_STABLE, since Linux 5.5)
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

// push adds an entry to the submission queue, which has room for all transfers that may be in flight.
func (u *uring) push(e sqe) {
	tail := *u.sqTail // written only here
	at := tail & u.sqMask
	u.sqes[at], u.sqArray[at] = e, at
	atomic.StoreUint32(u.sqTail, tail+1)
}

// enter submits n entries. The kernel may take some of them later if it is short of memory.
func (u *uring) enter(n int) {
	for n > 0 {
		took, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(u.fd), uintptr(n), 0, 0, 0, 0)
		switch errno {
		case 0:
			n -= int(took)
		case unix.EINTR, unix.EAGAIN, unix.EBUSY:
		default:
			panic(fmt.Sprintf("io_uring_enter: %v", errno)) // cannot happen: the ring is open
		}
	}
}

// wakeUser is the user_data of the no-op whose completion ends the reaper.
const wakeUser = ^uint64(0)

// reap completes transfers until close, as the kernel reports them. It waits by Go's poller: while a thread waits in a
// system call, a thread of Go's runtime wakes every 20 µs to check it, which took a sixth of a recording's CPU time.
func (u *uring) reap(conn syscall.RawConn) {
	if err := conn.Read(func(uintptr) bool { return u.drain() }); err != nil {
		panic(fmt.Sprintf("io_uring: %v", err)) // cannot happen: the ring is open
	}
}

// drain completes the transfers that are done, and reports whether it has found the entry that ends the reaper.
func (u *uring) drain() (closed bool) {
	head := *u.cqHead // written only here
	for tail := atomic.LoadUint32(u.cqTail); head != tail && !closed; head++ {
		c := u.cqes[head&u.cqMask]
		if closed = c.user == wakeUser; !closed {
			u.complete(int(c.user), c.res)
		}
	}
	atomic.StoreUint32(u.cqHead, head)
	return closed
}

func (u *uring) complete(i int, res int32) {
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

// close implements engine. No transfer may be in flight.
func (u *uring) close() error {
	close(u.queue)
	u.ends.Wait()
	return u.unmap()
}
