// SPDX-License-Identifier: Apache-2.0

package send

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

// errorQueue reads what the kernel tells about packets that it had taken: what it has let go of (MSG_ZEROCOPY), and ICMP
// answers (ip(7), IP_RECVERR). It must stay on the heap, where it does not move.
type errorQueue struct {
	seen  unix.Errno  // of the last ICMP answer
	note  udp.Message // for recvmsg
	notes struct {    // its control message
		head unix.Cmsghdr
		err  unix.SockExtendedErr
		rest [96]byte // the address that the kernel adds
	}
}

// next returns the next note about MSG_ZEROCOPY, nil when there is none. It keeps the error of others.
func (q *errorQueue) next(fd int) *unix.SockExtendedErr {
	for {
		q.note = udp.Message{Control: uintptr(unsafe.Pointer(&q.notes)), ControlLen: uint64(unsafe.Sizeof(q.notes))}
		_, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&q.note)), unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if errno != 0 {
			return nil // EAGAIN: nothing more
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

// take returns the error of the last ICMP answer since the last take.
func (q *errorQueue) take() unix.Errno {
	seen := q.seen
	q.seen = 0
	return seen
}
