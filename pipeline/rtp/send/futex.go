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
	futexWaitBitset = 9 | 128 // private, with a timeout by the monotonic clock (futex(2))
	futexWakeOne    = 1 | 128
	futexAnyBit     = 0xffffffff
)

// futexWait returns at once unless *word is value. Otherwise it blocks the thread until a signal, a futexWake, or time
// t of the monotonic clock; never means no time limit.
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

// ownThread runs a function on a dedicated thread, which the scheduler prefers to busy threads if the process has the
// right to request that (CAP_SYS_NICE or LimitNICE). The thread ends with the calling goroutine. ownThread does not use
// the process's first thread, because its name is the name of the program, also in the journal.
func ownThread(run func()) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		done := make(chan struct{})
		go func() { // runs on another thread, because this goroutine holds the first one
			defer close(done)
			ownThread(run)
		}()
		<-done // ends: run has returned
		runtime.UnlockOSThread()
		return
	}
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, senderNice) // 0 means the calling thread
	_ = os.WriteFile("/proc/thread-self/comm", []byte(senderName), 0)
	run()
}

// senderName is the thread's name in top and similar programs.
const senderName = "rtp-sender"

// senderNice is the thread's nice value. It favours the thread over threads that compute but, unlike a real-time
// priority, starves no other thread.
const senderNice = -10
