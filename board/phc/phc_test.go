// SPDX-License-Identifier: Apache-2.0

package phc

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cudahost/headertest"
)

// TestLayout compares the structs and numbers passed to the kernel with its header.
func TestLayout(t *testing.T) {
	var (
		c capabilities
		m moment
		o offsets
		x extended
		p precise
	)
	list := []any{
		"ptp_clock_caps", unsafe.Sizeof(c), "ptp_clock_caps.max_adj", unsafe.Offsetof(c.most),
		"ptp_clock_time", unsafe.Sizeof(m), "ptp_clock_time.nsec", unsafe.Offsetof(m.nanoseconds),
		"ptp_sys_offset", unsafe.Sizeof(o), "ptp_sys_offset.ts", unsafe.Offsetof(o.at),
		"ptp_sys_offset_extended", unsafe.Sizeof(x), "ptp_sys_offset_extended.ts", unsafe.Offsetof(x.at),
		"ptp_sys_offset_precise", unsafe.Sizeof(p), "ptp_sys_offset_precise.sys_realtime", unsafe.Offsetof(p.machine),
		"ptp_sys_offset_precise.sys_monoraw", unsafe.Offsetof(p.raw),
		"PTP_MAX_SAMPLES", maxSamples, "PTP_CLOCK_GETCAPS", callCapabilities, "PTP_SYS_OFFSET", callOffset,
		"PTP_SYS_OFFSET_PRECISE", callPrecise, "PTP_SYS_OFFSET_EXTENDED", callExtended,
	}
	text := ""
	for i := 0; i < len(list); i += 2 {
		text += fmt.Sprintln(list[i], list[i+1])
	}
	if out := headertest.Output(t, "testdata/layout.c"); out != text {
		t.Errorf("the header has\n%s\nand the package\n%s", out, text)
	}
}

// double is a kernel with a clock that is ahead of this machine's. It knows some calls, and refuses what the kernel
// refuses. One of its samples is quick, the others are slow and misleading.
type double struct {
	t     *testing.T
	ahead time.Duration
	knows map[uintptr]bool
	wrong map[uintptr]error // calls that it knows, and fails in
	fails error
	wild  time.Duration // somebody sets the machine's clock by this while it is read
	calls int
	shut  bool
}

func (d *double) Close() error { d.shut = true; return nil }

func (d *double) moments() (before, device, after moment) {
	now := time.Now().Add(d.wild)
	of := func(t time.Time) moment { return moment{seconds: t.Unix(), nanoseconds: uint32(t.Nanosecond())} }
	return of(now), of(now.Add(d.ahead + 200)), of(now.Add(400))
}

// slow makes a sample slow, and its middle wrong.
func slow(x *moment) { x.seconds++ }

func (d *double) call(number uintptr, data unsafe.Pointer) error {
	d.calls++
	switch {
	case d.shut:
		return unix.EBADF
	case d.fails != nil && number != callCapabilities:
		return d.fails
	case !d.knows[number]:
		return unix.EOPNOTSUPP
	case d.wrong[number] != nil:
		return d.wrong[number]
	}
	before, device, after := d.moments()
	check := func(n uint32, reserved [3]uint32) error {
		if n == 0 || n > maxSamples || reserved != [3]uint32{} {
			return unix.EINVAL
		}
		return nil
	}
	switch number {
	case callPrecise:
		x := (*precise)(data)
		if *x != (precise{}) {
			return unix.EINVAL
		}
		x.device, x.machine = device, before
		x.device.nanoseconds -= min(x.device.nanoseconds, 200)
	case callExtended:
		x := (*extended)(data)
		for i := range x.samples {
			x.at[i] = [3]moment{before, device, after}
			if i != 4 {
				slow(&x.at[i][2])
			}
		}
		return check(x.samples, [3]uint32{})
	case callOffset:
		x := (*offsets)(data)
		for i := range 2*x.samples + 1 {
			x.at[i] = []moment{before, device}[i%2]
			if i%2 == 0 && i >= 2 {
				x.at[i].seconds += int64(i)
			}
		}
		x.at[2] = after
		return check(x.samples, [3]uint32{})
	}
	return nil
}

func TestRead(t *testing.T) {
	all := []uintptr{callPrecise, callExtended, callOffset}
	for i, want := range ways {
		d := &double{t: t, ahead: 37*time.Second + 5*time.Microsecond, knows: map[uintptr]bool{callCapabilities: true}}
		for _, known := range all[i:] {
			d.knows[known] = true
		}
		c, err := open(d, "/dev/ptp7")
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			began := time.Now()
			ns, at, unsure, err := c.Read()
			if err != nil {
				t.Fatalf("%s: %v", want.name, err)
			}
			if at.Before(began.Add(-time.Microsecond)) || at.After(time.Now().Add(time.Millisecond)) {
				t.Errorf("%s: read at %v, between %v and now", want.name, at, began)
			}
			if off := time.Duration(ns - at.UnixNano() - int64(d.ahead)); off.Abs() > time.Microsecond || unsure > 20*time.Microsecond {
				t.Errorf("%s: off by %v, plus or minus %v", want.name, off, unsure)
			}
		}
		if c.Way() != want.name {
			t.Errorf("it was read by %s, want %s", c.Way(), want.name)
		}
		if d.calls != 1+i+3 { // capabilities, those that it does not know, and one for each reading
			t.Errorf("%s: %d calls", want.name, d.calls)
		}
		if err := c.Close(); err != nil || !d.shut {
			t.Error(err, d.shut)
		}
	}
}

// TestACallThatFails checks that the next way is tried and kept after any error, and another one if that fails later.
func TestACallThatFails(t *testing.T) {
	d := &double{t: t, wrong: map[uintptr]error{callPrecise: unix.EIO}}
	d.knows = map[uintptr]bool{callCapabilities: true, callPrecise: true, callExtended: true, callOffset: true}
	c, err := open(d, "/dev/ptp7")
	if err != nil {
		t.Fatal(err)
	}
	read := func(way string, calls int) {
		t.Helper()
		before := d.calls
		if _, _, _, err := c.Read(); err != nil || c.Way() != way || d.calls != before+calls {
			t.Errorf("%v, by %s with %d calls; want %s with %d", err, c.Way(), d.calls-before, way, calls)
		}
	}
	read("PTP_SYS_OFFSET_EXTENDED", 2)
	delete(d.wrong, callPrecise) // it was a moment
	read("PTP_SYS_OFFSET_PRECISE", 1)
	d.wrong[callPrecise] = unix.EIO // for good
	for range mostFailures {
		read("PTP_SYS_OFFSET_EXTENDED", 2)
	}
	read("PTP_SYS_OFFSET_EXTENDED", 1)
	d.wrong[callExtended] = unix.EOPNOTSUPP // as it always will be
	read("PTP_SYS_OFFSET", 2)
	read("PTP_SYS_OFFSET", 1)
	d.wrong[callOffset] = unix.ENODEV
	if _, _, _, err := c.Read(); !errors.Is(err, unix.ENODEV) {
		t.Errorf("when all fail: %v", err)
	}
	d.wrong = nil
	if _, _, _, err := c.Read(); err != nil {
		t.Errorf("when all work again: %v", err)
	}
}

func TestReadFails(t *testing.T) {
	gone := &double{t: t, knows: map[uintptr]bool{callCapabilities: true, callPrecise: true}, fails: unix.ENODEV}
	c, err := open(gone, "/dev/ptp7")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := c.Read(); !errors.Is(err, unix.ENODEV) || !strings.Contains(err.Error(), "/dev/ptp7: PTP_SYS_OFFSET_PRECISE") {
		t.Errorf("of an adapter that has gone: %v", err)
	}
	gone.fails = unix.EOPNOTSUPP
	if _, _, _, err := c.Read(); !errors.Is(err, unix.EOPNOTSUPP) || !strings.Contains(err.Error(), "/dev/ptp7: PTP_SYS_OFFSET:") {
		t.Errorf("of one that knows no call: %v", err)
	}
	set := &double{t: t, knows: map[uintptr]bool{callCapabilities: true, callPrecise: true}, wild: time.Hour}
	if c, err = open(set, "/dev/ptp7"); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := c.Read(); !errors.Is(err, errJumped) {
		t.Errorf("while the machine's clock is set: %v", err)
	}
}

func TestOpenSaysWhatToDo(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "ptp0")); err == nil || !strings.Contains(err.Error(), "/sys/class/ptp") {
		t.Errorf("of a file that does not exist: %v", err)
	}
	if _, err := Open("/dev/null"); err == nil || !strings.Contains(err.Error(), "/dev/null is not a PTP hardware clock") {
		t.Errorf("of another device: %v", err)
	}
	if os.Getuid() == 0 {
		return // root opens everything
	}
	path := filepath.Join(t.TempDir(), "ptp1")
	if err := os.WriteFile(path, nil, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "tegracast.rules") {
		t.Errorf("of a forbidden one: %v", err)
	}
}

func TestTAI(t *testing.T) {
	if d := TAI(); d != 0 && d < 37*time.Second || d > time.Minute {
		t.Errorf("TAI is ahead of UTC by %v", d)
	}
}

var clock = flag.String("clock", "", "device file of a PTP hardware clock")

// TestDevice reads a clock of the kernel a hundred times.
func TestDevice(t *testing.T) {
	if *clock == "" {
		t.Skip("NEEDS a PTP hardware clock: TestMock runs it in the virtual Jetson")
	}
	c, err := Open(*clock)
	if err != nil {
		t.Fatal(err)
	}
	var last int64
	for range 100 {
		ns, at, unsure, err := c.Read()
		if err != nil {
			t.Fatal(err)
		}
		if ns <= last || time.Since(at) < 0 || time.Since(at) > time.Minute || unsure < 0 {
			t.Errorf("%d after %d, at %v, plus or minus %v", ns, last, at, unsure)
		}
		last = ns
	}
	t.Logf("read by %s", c.Way())
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
