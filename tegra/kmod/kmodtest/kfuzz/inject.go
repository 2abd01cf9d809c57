// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mostAllocations is the highest number of a failing allocation in a call: few calls make more.
const mostAllocations = 32

// injectable opens the thread's fail-nth (Documentation/fault-injection).
func (t *thread) injectable() {
	fd, err := unix.Open("/proc/thread-self/fail-nth", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.wrong("fail-nth: %v", err)
		return
	}
	t.failNth = fd
}

// failing makes a system call. In one call of four, one allocation fails, the nth for a random n, if the call makes
// that many. Nothing between the writes may allocate memory.
//
//go:uintptrescapes
func (t *thread) failing(trap, a, b, c, d, e, f uintptr) (uintptr, unix.Errno) {
	if t.failNth < 0 || !t.one(4) {
		r, _, errno := unix.Syscall6(trap, a, b, c, d, e, f)
		return r, errno
	}
	var left [8]byte
	text := strconv.AppendInt(left[:0], int64(1+t.IntN(mostAllocations)), 10)
	t.failNthFile(unix.SYS_PWRITE64, &left, len(text))
	r, _, errno := unix.Syscall6(trap, a, b, c, d, e, f)
	left = [8]byte{}
	t.failNthFile(unix.SYS_PREAD64, &left, len(left))
	if left[0] == '0' {
		t.tally.injected.Add(1)
	}
	left[0] = '0'
	t.failNthFile(unix.SYS_PWRITE64, &left, 1)
	return r, errno
}

func (t *thread) failNthFile(trap uintptr, b *[8]byte, n int) {
	_, _, _ = unix.RawSyscall6(trap, uintptr(t.failNth), uintptr(unsafe.Pointer(b)), uintptr(n), 0, 0, 0)
}
