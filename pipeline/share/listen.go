// SPDX-License-Identifier: Apache-2.0

package share

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// maxPath is how long the path of a Unix socket can be (unix(7)), without the zero.
const maxPath = 107

// CheckSocket refuses what is no path of a socket.
func CheckSocket(path string) error {
	if path == "" || len(path) > maxPath || path[0] != '/' {
		return fmt.Errorf("%q: write a path that begins with / and has at most %d bytes, such as /run/tegracast/frames", path, maxPath)
	}
	return nil
}

// listen makes a socket whose file has the mode before anybody can connect: nobody can until listen(2).
func listen(path string, mode fs.FileMode) (*net.UnixListener, error) {
	if err := removeStale(path); err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("share: socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, fmt.Errorf("share: cannot make the socket %s: %w: its folder must exist, and be writable", path, err)
	}
	if err = unix.Chmod(path, uint32(mode.Perm())); err == nil {
		err = unix.Listen(fd, 16)
	}
	var l net.Listener
	if err == nil {
		l, err = net.FileListener(file)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("share: cannot listen at %s: %w", path, err), os.Remove(path))
	}
	return l.(*net.UnixListener), nil
}

// removeStale removes the socket of a process that has died, and nothing else.
func removeStale(path string) error {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("share: %w", err)
	case st.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("share: %s is there, and is no socket: name another path", path)
	}
	c, err := (&net.Dialer{Timeout: time.Second}).Dial("unixpacket", path)
	if err == nil {
		err = c.Close()
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("share: somebody listens at %s already, or it cannot be reached (%v): name another path", path, err)
	}
	return os.Remove(path)
}

// credentials are who has connected.
func credentials(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var who *unix.Ucred
	controlled := raw.Control(func(fd uintptr) { who, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return who, errors.Join(controlled, err)
}

// may says whether a process may have the frames: all that can connect may where nobody is named.
func (c *Config) may(who *unix.Ucred) bool {
	return len(c.Users)+len(c.Groups) == 0 || slices.Contains(c.Users, who.Uid) || slices.Contains(c.Groups, who.Gid)
}
