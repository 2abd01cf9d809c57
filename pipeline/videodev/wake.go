// SPDX-License-Identifier: Apache-2.0

package videodev

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Wake ends a Wait from another goroutine. It stays set until it is cleared. Only a Wait in progress costs it anything.
//
// A Wait with a Wake does not occupy a thread, as poll(2) would: the runtime's poller waits for an epoll file that contains
// the device. While a thread is in a system call, the runtime looks at it about 60 times in the first 10 ms, which costs
// several times as much as taking a frame.
type Wake struct {
	epoll *os.File
	conn  syscall.RawConn
	look  func(epoll uintptr) (done bool)
	set   atomic.Bool
	waits atomic.Bool // a Wait is in progress, or begins

	// of the goroutine that waits
	asks   func(begins bool)
	fd     int // of the file in epoll; -1: none
	what   int16
	limit  time.Duration // after which the deadline of epoll was set; 0: it has passed
	events [1]unix.EpollEvent
	ready  int // number of events
}

// NewWake returns a Wake, which the caller must close.
func NewWake() (*Wake, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // for os.File to use the runtime's poller
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(fd))
	}
	w := &Wake{epoll: os.NewFile(uintptr(fd), "epoll"), fd: -1, asks: func(bool) {}}
	if w.conn, err = w.epoll.SyscallConn(); err != nil {
		return nil, errors.Join(err, w.epoll.Close())
	}
	w.look = func(epoll uintptr) bool {
		w.asks(true)
		defer w.asks(false)
		w.ready, _ = unix.EpollWait(int(epoll), w.events[:], 0) // an error is seen by the next call of EpollCtl
		return w.ready > 0 || w.set.Load()
	}
	return w, nil
}

// Watch makes Waits call asks before and after system calls in which the kernel asks the driver for events. These calls
// do not wait, unless the driver hangs. Only the goroutine that waits may call Watch.
func (w *Wake) Watch(asks func(begins bool)) { w.asks = asks }

// Set ends the current Wait, or the next one. It is safe for concurrent use.
func (w *Wake) Set() {
	if w.set.Store(true); w.waits.Load() { // otherwise Poll sees that it is set
		_ = w.epoll.SetReadDeadline(time.Unix(1, 0)) // fails after Close
	}
}

// Clear takes back earlier calls of Set.
func (w *Wake) Clear() { w.set.Store(false) }

// Poll waits until a file has events of those in what, POLLERR or POLLHUP, and returns them; or until w, which may be nil,
// is set or limit has passed. It may return earlier, with nothing. A limit below a millisecond counts as one. Only one
// goroutine may call it.
func (w *Wake) Poll(fd int, what int16, limit time.Duration) (got int16, err error) {
	limit = max(limit, time.Millisecond)
	if w == nil {
		list := []unix.PollFd{{Fd: int32(fd), Events: what}}
		if _, err := unix.Poll(list, int(limit/time.Millisecond)); err != nil && !errors.Is(err, unix.EINTR) {
			return 0, os.NewSyscallError("poll", err)
		}
		return list[0].Revents, nil
	}
	if err := w.watch(fd, what); err != nil {
		return 0, os.NewSyscallError("epoll_ctl", err)
	}
	w.waits.Store(true)
	defer w.waits.Store(false)
	if w.limit != limit { // set seldom: each time would cost more than a wait that ends early once in a limit
		if err := w.epoll.SetReadDeadline(time.Now().Add(limit)); err != nil {
			return 0, err
		}
		w.limit = limit
	}
	w.ready = 0
	err = w.conn.Read(w.look)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.limit, err = 0, nil
	}
	if w.ready > 0 {
		got = int16(w.events[0].Events)
	}
	return got, err
}

// watch makes a file the one in epoll.
func (w *Wake) watch(fd int, what int16) error {
	if w.fd != fd {
		w.Forget()
		// Some drivers put only those queues on their list that the first call asks for.
		all := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLPRI}
		if err := w.control(unix.EPOLL_CTL_ADD, fd, &all); err != nil {
			return err
		}
		w.fd, w.what = fd, 0
	}
	if w.what != what {
		if err := w.control(unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Events: uint32(what)}); err != nil {
			return err
		}
		w.what = what
	}
	return nil
}

// Forget must be called before the file that was waited for is closed.
func (w *Wake) Forget() {
	if w.fd >= 0 {
		_ = w.control(unix.EPOLL_CTL_DEL, w.fd, nil) // fails only if it is gone already
		w.fd = -1
	}
}

func (w *Wake) control(operation, fd int, e *unix.EpollEvent) (err error) {
	w.asks(true)
	defer w.asks(false)
	return errors.Join(w.conn.Control(func(epoll uintptr) { err = unix.EpollCtl(int(epoll), operation, fd, e) }), err)
}

// Close frees the Wake. Set does nothing afterwards.
func (w *Wake) Close() error { return w.epoll.Close() }
