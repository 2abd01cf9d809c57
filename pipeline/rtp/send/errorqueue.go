// SPDX-License-Identifier: Apache-2.0

package send

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

// errorQueue reads the kernel's notifications about sent packets: messages that it has finished with (MSG_ZEROCOPY),
// and ICMP answers (ip(7), IP_RECVERR). It must be allocated on the heap, where it does not move.
type errorQueue struct {
	seen  unix.Errno  // error of the last ICMP answer
	note  udp.Message // message header for recvmsg(2), which refers to notes
	notes struct {    // control message
		head unix.Cmsghdr
		err  unix.SockExtendedErr
		rest [96]byte // the address added by the kernel
	}
}

// next returns the next notification about MSG_ZEROCOPY, or nil if there is none. It records the errors of ICMP answers
// on the way.
func (q *errorQueue) next(fd int) *unix.SockExtendedErr {
	for {
		q.note = udp.Message{Control: uintptr(unsafe.Pointer(&q.notes)), ControlLen: uint64(unsafe.Sizeof(q.notes))}
		_, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&q.note)), unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if errno != 0 {
			return nil // EAGAIN: the queue is empty
		}
		e := &q.notes.err
		switch {
		case q.note.ControlLen < uint64(unsafe.Offsetof(q.notes.rest)):
		case e.Origin == unix.SO_EE_ORIGIN_ZEROCOPY && e.Errno == 0:
			return e
		case e.Origin == unix.SO_EE_ORIGIN_ICMP || e.Origin == unix.SO_EE_ORIGIN_ICMP6:
			q.seen = unix.Errno(e.Errno)
		}
	}
}

// takeError returns and clears the error of the last ICMP answer.
func (q *errorQueue) takeError() unix.Errno {
	seen := q.seen
	q.seen = 0
	return seen
}
