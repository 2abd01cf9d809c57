// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Unix creates a listening Unix socket of type unix.SOCK_STREAM or unix.SOCK_SEQPACKET. Its file gets the mode before
// listen(2), and so before anybody can connect. It replaces the socket of a process that has died, but nothing else.
func Unix(path string, kind int, mode fs.FileMode) (*net.UnixListener, error) {
	network := "unix"
	if kind == unix.SOCK_SEQPACKET {
		network = "unixpacket"
	}
	if err := removeStale(path, network); err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, fmt.Errorf("cannot make the socket %s: %w: its folder must exist, and be writable", path, err)
	}
	if err = unix.Chmod(path, uint32(mode.Perm())); err == nil {
		err = unix.Listen(fd, 16)
	}
	var l net.Listener
	if err == nil {
		l, err = net.FileListener(file)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot listen at %s: %w", path, err), os.Remove(path))
	}
	return l.(*net.UnixListener), nil
}

// removeStale removes the socket of a process that has died, and nothing else.
func removeStale(path, network string) error {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case st.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s exists, and is not a socket: name another path", path)
	}
	c, err := (&net.Dialer{Timeout: time.Second}).Dial(network, path)
	if err == nil {
		err = c.Close()
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("another process already listens at %s, or it cannot be reached (%v): name another path", path, err)
	}
	return os.Remove(path)
}

// Credentials returns the process, user and group at the other end of a connection.
func Credentials(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var who *unix.Ucred
	controlled := raw.Control(func(fd uintptr) { who, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return who, errors.Join(controlled, err)
}
