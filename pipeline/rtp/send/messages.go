// SPDX-License-Identifier: Apache-2.0

package send

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

// A caller calls sendmmsg, which does not report the error that stopped it behind the first message. The next call is
// for one message alone: an error that lasts fails it. Only a refusal (ECONNREFUSED) is lost; the next packet brings
// another.
type caller struct{ alone bool }

// most is how many messages the next call may be for.
func (c *caller) most(n int) int {
	if c.alone {
		return 1
	}
	return n
}

// send returns how many messages were taken. The thread does not block, and is back within a millisecond (volley times
// maxDatagram at the most), so the runtime need not know.
func (c *caller) send(fd int, m []udp.Message, flags uintptr) (taken int, errno unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), unix.MSG_DONTWAIT|flags, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	c.alone = int(n) < len(m)
	return int(n), 0
}

// maxMessages are those of one packet in a call. The kernel takes 1024.
const maxMessages = 128

// messages is a message a packet.
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

// single is sendmsg.
type single struct{}

func (single) send(fd int, t *train, from, _ int) (packets, bytes int, errno unix.Errno) {
	// A udp.Message begins with its msghdr.
	n, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&t.Messages(from, from+1)[0])), unix.MSG_DONTWAIT)
	return 1, int(n), errno
}
