// SPDX-License-Identifier: Apache-2.0

package share

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// defaultSweep is how often the sink hears what consumers say while no frames come.
const defaultSweep = time.Second

// A watch tells when a consumer has gone, or has said something that a waiting frame depends on. What else consumers say is heard when the
// next frame comes: waking a thread for it would cost more than all else that a frame costs. It is an epoll of its own, since Go's wakes
// at each message; Go waits for the epoll.
type watch struct {
	file  *os.File
	raw   syscall.RawConn
	epoll int // file's
}

func newWatch() (*watch, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.SetNonblock(fd, true) // Go waits for such files alone
	}
	if err != nil {
		return nil, fmt.Errorf("share: epoll: %w", err)
	}
	w := &watch{file: os.NewFile(uintptr(fd), "epoll"), epoll: fd}
	if w.raw, err = w.file.SyscallConn(); err != nil {
		return nil, errors.Join(fmt.Errorf("share: epoll: %w", err), w.file.Close())
	}
	return w, nil
}

func (w *watch) control(operation, fd int, events uint32) error {
	return unix.EpollCtl(w.epoll, operation, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// add returns a descriptor of the connection that it watches.
func (w *watch) add(conn *net.UnixConn) (fd int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	controlled := raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 3) })
	if err := errors.Join(controlled, err); err != nil {
		return -1, err
	}
	if err := w.control(unix.EPOLL_CTL_ADD, fd, unix.EPOLLRDHUP); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// wait waits until something happens to a descriptor, at most so long. An error says that the watch is closed.
func (w *watch) wait(most time.Duration) error {
	if err := w.file.SetReadDeadline(time.Now().Add(most)); err != nil {
		return err
	}
	var event [1]unix.EpollEvent
	err := w.raw.Read(func(epoll uintptr) bool {
		n, _ := unix.EpollWait(int(epoll), event[:], 0)
		return n > 0
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// listen hears consumers until the sink is closed: all of them, whatever wakes it.
func (k *Sink) listen() {
	for {
		if err := k.watch.wait(k.cfg.sweep); err != nil {
			return
		}
		k.mu.Lock()
		k.hearAll()
		k.mu.Unlock()
	}
}

// hearAll hears all consumers. The lock is held.
func (k *Sink) hearAll() {
	for i := len(k.consumers) - 1; i >= 0; i-- { // hear takes one off that has gone
		k.hear(k.consumers[i])
	}
}

// hear reads what a consumer has said; one that has gone, or says what cannot be, is taken off. The lock is held.
func (k *Sink) hear(c *consumer) {
	var room [readySize + 1]byte // one more than the longest message: who sends more is told from who does not
	for {
		n, err := receive(c.fd, room[:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			c.arm()
			return
		case err == nil && n == 0, errors.Is(err, unix.ECONNRESET):
			k.remove(c, bye{CodeEnd, "the consumer has closed the connection"})
			return
		case err != nil:
			k.remove(c, bye{CodeEnd, err.Error()})
			return
		}
		if y := c.ready(room[:n]); y != nil {
			k.remove(c, *y)
			return
		}
	}
}

// Calls that never wait, once for each frame and consumer: Go's scheduler is not told of them. It would wake its monitor for that, which
// then looks at all threads every 20 µs for a while.

func receive(fd int, room []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&room[0])), uintptr(len(room)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func send(fd int, text []byte) error {
	const flags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	if _, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&text[0])), uintptr(len(text)), flags, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
