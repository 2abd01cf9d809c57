// SPDX-License-Identifier: Apache-2.0

package send

import (
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	futexWaitBitset = 9 | 128 // private, until a moment of the monotonic clock (futex(2))
	futexWakeOne    = 1 | 128
	futexAnyBit     = 0xffffffff
)

// futexWait blocks the thread while *word is value, until t or futexWake.
func futexWait(word *atomic.Uint32, value uint32, t time.Duration) {
	var until *unix.Timespec
	if t != never {
		ts := unix.NsecToTimespec(int64(t))
		until = &ts
	}
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWaitBitset, uintptr(value),
		uintptr(unsafe.Pointer(until)), 0, futexAnyBit)
}

// futexWake wakes the thread that waits for word.
func futexWake(word *atomic.Uint32) {
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWakeOne, 1, 0, 0, 0)
}

// ownThread runs a function on a thread of its own that the scheduler wakes before busy ones, as far as the process may ask for
// that (CAP_SYS_NICE or LimitNICE). The thread ends with the calling goroutine. It is not the process's first one, whose name is
// the program's, in the journal, too.
func ownThread(run func()) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		done := make(chan struct{})
		go func() { // on another thread, since this one is taken
			defer close(done)
			ownThread(run)
		}()
		<-done // ends: run has returned
		runtime.UnlockOSThread()
		return
	}
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, senderNice) // 0 is the calling thread
	_ = os.WriteFile("/proc/thread-self/comm", []byte(senderName), 0)
	run()
}

// senderName is what top and the like call the thread.
const senderName = "rtp-sender"

// senderNice is better than everything that computes, and worse than what the kernel needs.
const senderNice = -10
