// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A transfer is one read or write of a file by one system call.
type transfer struct {
	fd      int
	fdPlace int // place of fd in the engine's table; -1: none
	write   bool
	addr    uintptr // in host memory that does not move
	place   int     // place of the registered buffer that contains it; -1: none
	vector  []iovec // memory in pieces, instead of addr; nil: it is contiguous
	n       int     // bytes
	off     int64   // in the file
	// done is called once, from any goroutine, with the number of bytes moved or an errno. It must not block.
	done func(n int, errno unix.Errno)
}

// An engine passes transfers to the kernel.
type engine interface {
	// start starts transfers, and may wait for others to end. They may complete in any order.
	start(list []*transfer)
	// addFile, dropFile, addBuffer and dropBuffer manage the engine's tables of files and memory. A place of -1 means
	// none.
	addFile(fd int) (place int)
	dropFile(place int)
	addBuffer(base uintptr, size int) (place int)
	dropBuffer(place int)
	// close ends the engine. No transfer may be in progress.
	close() error
}

// callers is the maximum number of threads in which a calls engine makes system calls.
const callers = 16

// calls is an engine that makes blocking system calls, for kernels without io_uring, or processes that may not use it.
type calls struct {
	room chan struct{} // holds a value for each thread in a system call
	busy sync.WaitGroup
}

func newCalls() *calls { return &calls{room: make(chan struct{}, callers)} }

func (c *calls) start(list []*transfer) {
	for _, t := range list {
		c.room <- struct{}{}
		c.busy.Go(func() {
			n, errno := t.call(false)
			<-c.room // ends: this transfer has sent a value
			t.done(n, errno)
		})
	}
}

func (c *calls) addFile(int) int            { return -1 }
func (c *calls) dropFile(int)               {}
func (c *calls) addBuffer(uintptr, int) int { return -1 }
func (c *calls) dropBuffer(int)             {}

func (c *calls) close() error {
	c.busy.Wait()
	return nil
}

// call performs the transfer by preadv2 or pwritev2, and waits for its end. With poll the kernel polls if it can, which
// helps with small transfers.
func (t *transfer) call(poll bool) (n int, errno unix.Errno) {
	for {
		n, errno := t.once(poll)
		switch {
		case errno == unix.EINTR:
		case poll && errno == unix.EOPNOTSUPP:
			poll = false
		default:
			return n, errno
		}
	}
}

const rwfHiPri = 1 // RWF_HIPRI of linux/fs.h

func (t *transfer) once(poll bool) (n int, errno unix.Errno) {
	vector := t.vector
	if vector == nil {
		vector = []iovec{{t.addr, uint64(t.n)}}
	}
	trap, flags := uintptr(unix.SYS_PREADV2), uintptr(0)
	if t.write {
		trap = unix.SYS_PWRITEV2
	}
	if poll {
		flags = rwfHiPri
	}
	r, _, errno := unix.Syscall6(trap, uintptr(t.fd), uintptr(unsafe.Pointer(&vector[0])), uintptr(len(vector)), uintptr(t.off), 0, flags)
	if errno != 0 {
		return 0, errno
	}
	return int(r), 0
}
