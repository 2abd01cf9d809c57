// SPDX-License-Identifier: Apache-2.0

package phc

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernel answers calls on an open device file. In tests a double does.
type kernel interface {
	call(number uintptr, data unsafe.Pointer) error
	Close() error
}

// A Clock is the clock of a network adapter, open for reading.
type Clock struct {
	kernel kernel
	path   string
	way    int // index of the one of ways that has worked last
	best   int // index of the one that is tried first
	failed int // failures of that one in a row
}

// way is a way to read the adapter's clock and the machine's at one moment.
type way struct {
	name string
	read func(k kernel) (sample, error)
}

// The ways to read, the best first.
var ways = []way{
	{"PTP_SYS_OFFSET_PRECISE", readPrecise},
	{"PTP_SYS_OFFSET_EXTENDED", readExtended},
	{"PTP_SYS_OFFSET", readOffset},
}

// sample is the adapter's clock, and the machine's (CLOCK_REALTIME) at the same moment, plus or minus half; all in ns.
type sample struct{ device, machine, half int64 }

// Samples a call takes: the quickest of them counts.
const samples = 9

// Open opens a device file such as /dev/ptp0. The error says what to do.
func Open(path string) (*Clock, error) {
	f, err := os.OpenFile(path, os.O_RDONLY, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: there is no such clock: /sys/class/ptp/*/clock_name lists those of this machine, ethtool -T an adapter's", err)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w: let the group of the service read it, as the rule for ptp* in tegracast.rules does for udev", err)
	case err != nil:
		return nil, err
	}
	return open(device{f}, path)
}

func open(k kernel, path string) (*Clock, error) {
	c := &Clock{kernel: k, path: path}
	var caps capabilities
	if err := k.call(callCapabilities, unsafe.Pointer(&caps)); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is not a PTP hardware clock: PTP_CLOCK_GETCAPS: %w", path, err), k.Close())
	}
	return c, nil
}

// Close closes the device file.
func (c *Clock) Close() error { return c.kernel.Close() }

// unknown reports whether err means that the adapter or the kernel does not know a call.
func unknown(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS)
}

// errJumped means that the machine's clock was set during a reading.
var errJumped = errors.New("this machine's clock was set during each reading")

// tries is the number of readings of which one must not be disturbed by somebody who sets the machine's clock.
const tries = 3

// Read returns the adapter's time in ns since 1970 of its scale (TAI), and the time on this machine, plus or minus
// unsure, at which it had that.
func (c *Clock) Read() (ns int64, at time.Time, unsure time.Duration, err error) {
	for range tries {
		before := time.Now()
		s, err := c.sample()
		after := time.Now()
		if err != nil {
			return 0, time.Time{}, 0, err
		}
		// The calls give the machine's wall clock. What it has to do with the monotonic one is known before and after.
		moved := time.Duration(after.UnixNano() - before.UnixNano() - int64(after.Sub(before)))
		if moved.Abs() > slew(after.Sub(before)) {
			continue
		}
		at := before.Add(time.Duration(s.machine - before.UnixNano()))
		if at.Before(before.Add(-time.Millisecond)) || at.After(after.Add(time.Millisecond)) {
			continue
		}
		return s.device, at, time.Duration(s.half) + moved.Abs(), nil
	}
	return 0, time.Time{}, 0, fmt.Errorf("%s: %w", c.path, errJumped)
}

// slew returns a bound of how far a wall clock that is not set moves against the monotonic one while passed passes. Of it
// 5 µs are for the time from reading one to reading the other.
func slew(passed time.Duration) time.Duration { return 5*time.Microsecond + passed/1000 }

// mostFailures is the number of failures in a row after which a way is not tried any more: a driver may know a call and
// fail in it for good.
const mostFailures = 8

// sample reads both clocks in the best way that works. If none does, the error is that of the first way that the adapter
// knows.
func (c *Clock) sample() (s sample, err error) {
	name := ""
	for i := range ways {
		way := (c.best + i) % len(ways)
		s, e := ways[way].read(c.kernel)
		if e == nil {
			if c.way = way; way == c.best {
				c.failed = 0
			} else if c.failed++; unknown(err) || c.failed == mostFailures {
				c.best, c.failed = way, 0
			}
			return s, nil
		}
		if err == nil || unknown(err) {
			name, err = ways[way].name, e
		}
	}
	return s, fmt.Errorf("%s: %s: %w", c.path, name, err)
}

// Way returns the name of the call that the latest Read has used.
func (c *Clock) Way() string { return ways[c.way].name }

func readPrecise(k kernel) (sample, error) {
	var x precise
	if err := k.call(callPrecise, unsafe.Pointer(&x)); err != nil {
		return sample{}, err
	}
	return sample{x.device.ns(), x.machine.ns(), 1}, nil
}

func readExtended(k kernel) (best sample, err error) {
	x := extended{samples: samples}
	if err := k.call(callExtended, unsafe.Pointer(&x)); err != nil {
		return sample{}, err
	}
	return quickest(samples, func(i int) [3]moment { return x.at[i] })
}

func readOffset(k kernel) (best sample, err error) {
	x := offsets{samples: samples}
	if err := k.call(callOffset, unsafe.Pointer(&x)); err != nil {
		return sample{}, err
	}
	return quickest(samples, func(i int) [3]moment { return [3]moment(x.at[2*i : 2*i+3]) })
}

// errBackwards means that the machine's clock went back within each sample.
var errBackwards = errors.New("this machine's clock goes back")

// quickest returns the sample whose readings of the machine's clock are closest together.
func quickest(n int, at func(i int) [3]moment) (best sample, err error) {
	err = errBackwards
	for i := range n {
		x := at(i)
		passed := x[2].ns() - x[0].ns()
		if half := passed/2 + 1; passed >= 0 && (err != nil || half < best.half) {
			best, err = sample{x[1].ns(), x[0].ns() + passed/2, half}, nil
		}
	}
	return best, err
}

// TAI returns how far TAI is ahead of UTC according to the kernel, or 0 if nobody has told it. It needs no right.
func TAI() time.Duration {
	var tai, utc unix.Timespec
	if unix.ClockGettime(unix.CLOCK_TAI, &tai) != nil || unix.ClockGettime(unix.CLOCK_REALTIME, &utc) != nil {
		return 0
	}
	return time.Duration(tai.Nano() - utc.Nano()).Round(time.Second)
}

// taiSince2017 is TAI less UTC since the latest leap second.
const taiSince2017 = 37 * time.Second

// Ahead returns how far TAI is ahead of UTC, as TAI does, or since 2017 if nobody has told the kernel.
func Ahead() time.Duration { return cmp.Or(TAI(), taiSince2017) }

// device is an open device file.
type device struct{ *os.File }

func (d device) call(number uintptr, data unsafe.Pointer) error {
	raw, err := d.SyscallConn()
	if err != nil {
		return err
	}
	var errno unix.Errno
	err = raw.Control(func(fd uintptr) {
		for errno = unix.EINTR; errno == unix.EINTR; {
			_, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, number, uintptr(data))
		}
	})
	if err == nil && errno != 0 {
		err = errno
	}
	return err
}
