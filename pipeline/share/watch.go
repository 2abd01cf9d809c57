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

// defaultSweep is the interval at which the sink reads the consumers' messages while no frames arrive.
const defaultSweep = time.Second

// A watch reports when a consumer has disconnected, or has sent a message that a waiting frame depends on. All other
// messages are read when the next frame arrives, because waking a thread for them would cost more than everything else
// about a frame. It is a separate epoll, since Go's own would wake up for every message; Go's poller waits for this
// epoll.
type watch struct {
	file  *os.File
	raw   syscall.RawConn
	epoll int // descriptor of file
}

func newWatch() (*watch, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.SetNonblock(fd, true) // Go's poller only handles non-blocking files
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

// add watches the connection, and returns the watched descriptor, a duplicate that the caller must close.
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

// wait waits until a watched descriptor has an event, but at most for the given time. An error means that the watch is
// closed.
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

// listen reads the consumers' messages until the sink is closed. Whatever wakes it, it reads those of all consumers.
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

// hearAll reads the messages of all consumers. The lock must be held.
func (k *Sink) hearAll() {
	for i := len(k.consumers) - 1; i >= 0; i-- { // backwards, because hear may remove a consumer
		k.hear(k.consumers[i])
	}
}

// hear reads the messages of a consumer, and removes it if it has disconnected or breaks the protocol. The lock must be
// held.
func (k *Sink) hear(c *consumer) {
	for {
		n, err := receive(c.fd, k.room)
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
		if y := c.hear(k.room[:n]); y != nil {
			k.remove(c, *y)
			return
		}
	}
}

// receive reads a message into room. Like send, it never waits, and bypasses Go's scheduler, because it is called for
// each frame and consumer: the scheduler would wake its monitor, which then checks all threads every 20 µs for a while.
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
