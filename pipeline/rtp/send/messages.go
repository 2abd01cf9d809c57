// SPDX-License-Identifier: Apache-2.0

package send

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

// A caller calls sendmmsg. If an error stops sendmmsg after the first message, it does not report the error. The next
// call is therefore for one message only, and fails if the error persists. Only a refusal (ECONNREFUSED) is lost in
// this way; the next packet causes another.
type caller struct{ alone bool }

// most limits n to the number of messages allowed in the next call.
func (c *caller) most(n int) int {
	if c.alone {
		return 1
	}
	return n
}

// send returns the number of messages sent. The call does not block, and returns within a millisecond (at most volley
// times maxDatagram bytes), so the runtime need not be informed.
func (c *caller) send(fd int, m []udp.Message, flags uintptr) (taken int, errno unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), unix.MSG_DONTWAIT|flags, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	c.alone = int(n) < len(m)
	return int(n), 0
}

// maxMessages is the maximum number of messages per call, with one packet each. The kernel accepts 1024.
const maxMessages = 128

// messages sends each packet as a message, by sendmmsg.
type messages struct{ caller caller }

func (m *messages) send(fd int, t *train, from, to int) (packets, bytes int, errno unix.Errno) {
	to = min(to, from+m.caller.most(maxMessages))
	sent := t.Messages(from, to)
	if packets, errno = m.caller.send(fd, sent, 0); errno != 0 {
		return 0, 0, errno
	}
	for i := range packets {
		bytes += int(sent[i].Len)
	}
	return packets, bytes, errno
}

// single sends one packet per call, by sendmsg.
type single struct{}

func (single) send(fd int, t *train, from, _ int) (packets, bytes int, errno unix.Errno) {
	// A udp.Message begins with a msghdr.
	n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&t.Messages(from, from+1)[0])), unix.MSG_DONTWAIT)
	return 1, int(n), errno
}
