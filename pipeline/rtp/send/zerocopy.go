// SPDX-License-Identifier: Apache-2.0

package send

import (
	"os"

	"golang.org/x/sys/unix"
)

// zeroCopy is segments with MSG_ZEROCOPY (Linux Documentation/networking/msg_zerocopy.rst): the kernel sends from the
// frame's own memory, and reports on the socket's error queue when it has finished with that memory.
type zeroCopy struct {
	segments
	next   uint32      // number of the next message, as counted by the kernel
	trains []*train    // trains of the unfinished messages, by number modulo maxInFlight; nil: finished
	copied bool        // the kernel has made copies after all, so zero-copy costs more than it saves
	errors *errorQueue // of the socket
}

// maxInFlight is the maximum number of messages with which the kernel has not finished.
const maxInFlight = 4096

func newZeroCopy(fd, burst int, q *errorQueue) (*zeroCopy, error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ZEROCOPY, 1); err != nil {
		return nil, os.NewSyscallError("setsockopt SO_ZEROCOPY", err)
	}
	return &zeroCopy{segments: *newSegments(burst), trains: make([]*train, maxInFlight), errors: q}, nil
}

func (z *zeroCopy) send(fd int, t *train, from, to int) (packets, bytes int, errno unix.Errno) {
	if !t.Contiguous() {
		return z.segments.send(fd, t, from, to)
	}
	most := z.room()
	if most == 0 {
		z.reap(fd)
		if most = z.room(); most == 0 {
			return 0, 0, unix.EAGAIN
		}
	}
	packets, bytes, taken, errno := z.offer(fd, t, from, to, most, unix.MSG_ZEROCOPY)
	for range taken {
		t.inFlight.Add(1)
		z.trains[z.next%maxInFlight] = t
		z.next++
	}
	if z.caller.alone || errno != 0 {
		z.reap(fd) // the kernel may have counted the message that it did not take
	}
	return packets, bytes, errno
}

// room returns how many messages of a volley may be sent.
func (z *zeroCopy) room() (n int) {
	for n < volley && z.trains[(z.next+uint32(n))%maxInFlight] == nil {
		n++
	}
	return n
}

// reap reads the kernel's notifications of finished messages. For UDP, contrary to msg_zerocopy.rst, the kernel also
// counts messages that it fails to send after it has built them (ENOBUFS from a queue, EPERM from a filter, EMSGSIZE,
// EIO). As a rule it reports these as finished before sendmmsg returns.
func (z *zeroCopy) reap(fd int) {
	for e := z.errors.next(fd); e != nil; e = z.errors.next(fd) {
		z.copied = z.copied || e.Code&unix.SO_EE_CODE_ZEROCOPY_COPIED != 0
		for from, to := e.Info, e.Data; ; from++ {
			if int32(from-z.next) >= 0 { // of a message that was counted, but not sent
				z.next = from + 1
			} else if at := &z.trains[from%maxInFlight]; *at != nil {
				(*at).inFlight.Add(-1)
				*at = nil
			}
			if from == to {
				break
			}
		}
	}
}

// letGo forgets all messages in flight, when the socket is closed.
func (z *zeroCopy) letGo() {
	for i, t := range z.trains {
		if t != nil {
			t.inFlight.Add(-1)
			z.trains[i] = nil
		}
	}
}
