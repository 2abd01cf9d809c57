// SPDX-License-Identifier: Apache-2.0

package send

import (
	"os"

	"golang.org/x/sys/unix"
)

// zeroCopy is segments with MSG_ZEROCOPY (Linux Documentation/networking/msg_zerocopy.rst): the kernel sends from the
// frame's own memory and tells on the socket's error queue when it has let go.
type zeroCopy struct {
	segments
	next   uint32      // message's number, as the kernel counts
	trains []*train    // that the last messages were for, by number
	copied bool        // the kernel has made copies after all: it costs more than it saves
	errors *errorQueue // the socket's
}

// maxInFlight is how many messages may be unfinished.
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
	return packets, bytes, errno
}

// room is how many messages of a volley may be sent.
func (z *zeroCopy) room() (n int) {
	for n < volley && z.trains[(z.next+uint32(n))%maxInFlight] == nil {
		n++
	}
	return n
}

// reap takes the kernel's notes of what it has let go.
func (z *zeroCopy) reap(fd int) {
	for e := z.errors.next(fd); e != nil; e = z.errors.next(fd) {
		z.copied = z.copied || e.Code&unix.SO_EE_CODE_ZEROCOPY_COPIED != 0
		for from, to := e.Info, e.Data; ; from++ {
			if at := &z.trains[from%maxInFlight]; *at != nil {
				(*at).inFlight.Add(-1)
				*at = nil
			}
			if from == to {
				break
			}
		}
	}
}

// letGo forgets what is in flight, when the socket closes.
func (z *zeroCopy) letGo() {
	for i, t := range z.trains {
		if t != nil {
			t.inFlight.Add(-1)
			z.trains[i] = nil
		}
	}
}
