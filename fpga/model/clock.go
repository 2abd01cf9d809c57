// SPDX-License-Identifier: Apache-2.0

package model

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Clock is the source of a device's time.
type Clock interface {
	Now() time.Time
	// Wait waits until t and returns true, or returns false as soon as something is received from wake.
	Wait(t time.Time, wake <-chan struct{}) bool
}

// RealClock returns a clock of the machine's monotonic time.
func RealClock() Clock { return &realClock{} }

type realClock struct {
	mu   sync.Mutex
	free []*preciseTimer
}

func (*realClock) Now() time.Time { return time.Now() }

func (c *realClock) Wait(t time.Time, wake <-chan struct{}) bool {
	d := time.Until(t)
	if d <= 0 {
		return true
	}
	timer := c.timer()
	defer c.putBack(timer)
	timer.reset(d)
	select {
	case <-timer.C:
		return true
	case <-wake:
		return false
	}
}

func (c *realClock) timer() *preciseTimer {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.free)
	if n == 0 {
		return newPreciseTimer()
	}
	timer := c.free[n-1]
	c.free = c.free[:n-1]
	return timer
}

func (c *realClock) putBack(timer *preciseTimer) {
	timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free = append(c.free, timer)
}

// preciseTimer is a timer that is punctual even in an idle process. There, the runtime waits for its timers in steps of
// a millisecond (epoll_wait(2)); the kernel ends that wait when this timer is due (timerfd_create(2)).
type preciseTimer struct {
	*time.Timer
	fd    int      // file descriptor of alarm; not used if alarm is nil
	alarm *os.File // makes the runtime wait for fd, and closes it; nil: it could not be created, and the timer may be late
}

func newPreciseTimer() *preciseTimer {
	t := &preciseTimer{Timer: time.NewTimer(time.Hour)}
	if fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err == nil {
		t.fd, t.alarm = fd, os.NewFile(uintptr(fd), "timerfd")
	}
	return t
}

func (t *preciseTimer) reset(d time.Duration) {
	t.Reset(d)
	if t.alarm != nil {
		_ = unix.TimerfdSettime(t.fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil)
	}
}
