// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/accept"
)

// socketMode is the mode of the socket, which admits the service's user and group. root can always connect.
const socketMode = 0o660

// localListener is a Unix socket whose clients need no key: root, and the user and the group of this process, as reported
// by the kernel.
type localListener struct{ *net.UnixListener }

// listenLocal creates the socket and listens on it. Close of the listener removes the socket.
func listenLocal(path string) (net.Listener, error) {
	l, err := accept.Unix(path, unix.SOCK_STREAM, socketMode)
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(true)
	return localListener{l}, nil
}

// Accept implements net.Listener.
func (l localListener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if isOwn(c) {
			return c, nil
		}
		_ = c.Close()
	}
}

// isOwn reports whether a client is admitted (unix(7), SO_PEERCRED and SO_PEERGROUPS).
func isOwn(c *net.UnixConn) bool {
	who, err := accept.Credentials(c)
	if err != nil {
		return false
	}
	own := uint32(os.Getegid())
	return who.Uid == 0 || int(who.Uid) == os.Geteuid() || who.Gid == own || slices.Contains(peerGroups(c), own)
}

// peerGroups returns the supplementary groups of the connected process, or none if the kernel does not report them.
func peerGroups(c *net.UnixConn) []uint32 {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	groups := make([]uint32, 1<<16) // NGROUPS_MAX of Linux
	size := uint32(len(groups) * 4)
	var errno unix.Errno
	controlled := raw.Control(func(fd uintptr) {
		_, _, errno = unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
	})
	if errno != 0 || controlled != nil {
		return nil
	}
	return groups[:size/4]
}
