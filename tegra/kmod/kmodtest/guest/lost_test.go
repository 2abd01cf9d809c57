// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// A function that loses its state is stopped, fenced and inaccessible until it answers, and its users get the reason.

// lostBy checks that the function was stopped for a reason, and that nothing is reported as live.
func (d *device) lostBy(t *testing.T, failed *event, reason uint32) {
	t.Helper()
	failed.wait(t)
	if i := d.info(t); i.State != uapi.StateFenced || i.Error != reason || i.Errors == 0 {
		t.Fatalf("%+v, want error %d", i, reason)
	}
	if busMaster(t) {
		t.Error("bus mastering goes on")
	}
	_, _, err := d.pin(anonymous(t, page), bothWays)
	wantErrno(t, "PIN", err, unix.ESTALE)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0); err != nil {
		t.Fatal(err)
	}
}

// debugPage returns the debug page of the function.
func debugPage(t *testing.T) string {
	t.Helper()
	_ = unix.Mount("none", "/sys/kernel/debug", "debugfs", 0, "") // it may be mounted
	b, err := os.ReadFile("/sys/kernel/debug/tegra_p2p/" + strings.TrimPrefix(devicePath, "/dev/"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// fencedAt returns the latest time of the last fence. The debug page gives it in whole milliseconds.
func fencedAt(t *testing.T, why string) time.Time {
	t.Helper()
	found := regexp.MustCompile(`fence \d+: `+why+`, (\d+)\.(\d+),`).FindAllStringSubmatch(debugPage(t), -1)
	if found == nil {
		t.Fatalf("no fence because %q:\n%s", why, debugPage(t))
	}
	last := found[len(found)-1]
	seconds, _ := strconv.ParseInt(last[1], 10, 64)
	millis, _ := strconv.ParseInt(last[2], 10, 64)
	return time.UnixMilli(seconds*1000 + millis + 1)
}

// TestSuspend suspends the machine's devices during a DMA.
func TestSuspend(t *testing.T) {
	s := newScene(t)
	failed := s.event(t, uapi.EventError)
	write(t, "/sys/power/pm_test", "devices")
	_ = os.WriteFile("/sys/module/suspend/parameters/pm_test_delay", []byte("1"), 0) // the default is 5 s
	m := newMemory(t, pinPages*page)
	p := s.inFlight(t, m.bytes)
	write(t, "/sys/power/state", "freeze")
	s.lostBy(t, failed, uapi.ErrorSuspend)
	m.check(t, fencedAt(t, "the machine was suspended").Before(s.edu.started.Add(eduTime)))
	if q := s.query(t, p.Handle); q.State != uapi.PinLive {
		t.Errorf("the memory is still pinned: %+v", q)
	}
	if id := s.edu.read(eduID); id != 0x010000ed {
		t.Errorf("after the resume edu's id is %#x", id)
	}
	s.edu.idle()
	s.put(t, p.Handle)
	s.usable(t)
}

// registers maps the function's BAR 4, whose virtio status a reset clears.
func (d *device) registers(t *testing.T) *edu {
	t.Helper()
	r, err := uapi.GetRegion(d.fd, 4)
	if err != nil {
		t.Fatal(err)
	}
	return &edu{regs: d.mmap(t, r.MmapOffset, r.Size)}
}

// TestSysfsReset resets the function from outside.
func TestSysfsReset(t *testing.T) {
	noLeak(t)
	d, other := open(t).live(t), open(t)
	failed := d.event(t, uapi.EventError)
	e := d.registers(t)
	defer e.close()
	for range times {
		d.live(t)
		e.write(virtioStatus, 1)
		p, _ := d.mustPin(t, anonymous(t, page))
		write(t, pciDevice+"reset", "1")
		d.lostBy(t, failed, uapi.ErrorReset)
		if v := e.read(virtioStatus) & 0xff; v != 0 {
			t.Fatalf("status %#x after the reset", v)
		}
		d.put(t, p.Handle)
	}
	d.live(t)
	before := d.info(t).Errors
	if _, err := uapi.DoControl(other.fd, uapi.ControlReset, 0); err != nil {
		t.Fatal(err)
	}
	d.lostBy(t, failed, uapi.ErrorReset)
	if n := d.info(t).Errors; n != before+1 {
		t.Errorf("%d errors, want %d", n, before+1)
	}
	if _, err := uapi.DoControl(d.fd, uapi.ControlReset, 0); err != nil || failed.count() != 0 {
		t.Errorf("RESET: %v; whoever asks for it needs not be told", err)
	}
	d.live(t)
}

// TestFatal makes the host report a fatal error of the function: the bus is reset, and the function works again
// afterwards.
func TestFatal(t *testing.T) {
	noLeak(t)
	d := open(t).live(t)
	failed := d.event(t, uapi.EventError)
	e := d.registers(t)
	defer e.close()
	for range min(times, 3) {
		reportErrors(t, function)
		reportErrors(t, os.Getenv("GUEST_PORT"))
		d.live(t)
		e.write(virtioStatus, 1)
		p, _ := d.mustPin(t, anonymous(t, page))
		inject(t, "MALF_TLP")
		d.lostBy(t, failed, uapi.ErrorFatal)
		d.resumes(t)
		if v := e.read(virtioStatus) & 0xff; v != 0 {
			t.Fatalf("status %#x after the bus was reset", v)
		}
		e.write(virtioStatus, 1)
		if v := e.read(virtioStatus) & 0xff; v != 1 || !busMaster(t) {
			t.Fatalf("its registers do not come back: status %#x, bus master %v", v, busMaster(t))
		}
		d.put(t, p.Handle)
	}
}

// resumes waits until the function answers again. Until then RESUME returns EIO.
func (d *device) resumes(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		_, err := uapi.DoControl(d.fd, uapi.ControlResume, d.info(t).FenceGen)
		if err == nil {
			return
		}
		if !errors.Is(err, unix.EIO) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// TestCloseResets leaves a mark in the function's registers, which the next holder must not see.
func TestCloseResets(t *testing.T) {
	noLeak(t)
	for range min(times, 3) {
		d := open(t).live(t)
		e := d.registers(t)
		e.write(virtioStatus, 1)
		reader, err := unix.Open(devicePath, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(reader) // not the last descriptor that can write
		if v := e.read(virtioStatus) & 0xff; v != 1 {
			t.Errorf("status %#x after a reader has closed", v)
		}
		e.close()
		d.close()
		d = open(t)
		e = d.registers(t)
		if v := e.read(virtioStatus) & 0xff; v != 0 || d.info(t).State != uapi.StateFenced {
			t.Errorf("the next holder finds status %#x, %+v", v, d.info(t))
		}
		e.close()
		d.close()
	}
}

// TestOpenWhileClosing opens the device while its last holder closes it, and while others hold the lock that a reset
// needs. The function must be reset between the two holders, or not at all if they overlap.
func TestOpenWhileClosing(t *testing.T) {
	noLeak(t)
	done := make(chan struct{})
	var others sync.WaitGroup
	for range 3 {
		others.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_, _ = os.ReadFile(pciDevice + "driver_override") // takes the function's lock
				}
			}
		})
	}
	alone := 0
	for range max(times, 20) {
		d := open(t).live(t)
		e := d.registers(t)
		e.write(virtioStatus, 1)
		e.close()
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			d.close()
		}()
		next := open(t)
		<-closed
		if next.info(t).State == uapi.StateFenced { // fenced by the last close
			alone++
			e = next.registers(t)
			if v := e.read(virtioStatus) & 0xff; v != 0 {
				t.Errorf("the next holder finds status %#x", v)
			}
			e.close()
		}
		next.close()
	}
	close(done)
	others.Wait()
	t.Logf("%d of %d came after the close", alone, max(times, 20))
}

// TestNeighbour adds another function, $GUEST_NEIGHBOUR, to the group of one in use.
func TestNeighbour(t *testing.T) {
	noLeak(t)
	d := open(t).live(t)
	if i := d.info(t); i.Flags&uapi.InfoUnsafe != 0 || !busMaster(t) {
		t.Fatalf("%+v, bus master %v", i, busMaster(t))
	}
	failed := d.event(t, uapi.EventError)
	p, _ := d.mustPin(t, anonymous(t, page))
	other := "/sys/bus/pci/devices/" + os.Getenv("GUEST_NEIGHBOUR") + "/"
	write(t, other+"driver_override", "tegra_p2p")
	write(t, "/sys/bus/pci/drivers_probe", os.Getenv("GUEST_NEIGHBOUR"))
	failed.wait(t)
	i := d.info(t)
	if i.State != uapi.StateFenced || i.Error != uapi.ErrorExposed || i.Flags&uapi.InfoUnsafe == 0 || busMaster(t) {
		t.Fatalf("%+v, bus master %v", i, busMaster(t))
	}
	resume := func() error { _, err := uapi.DoControl(d.fd, uapi.ControlResume, i.FenceGen); return err }
	wantErrno(t, "RESUME", resume(), unix.EPERM)
	allowUnsafe(t, "1")
	defer allowUnsafe(t, "0")
	wantErrno(t, "RESUME by nobody", resumeAs(t, d, 65534), unix.EPERM)
	wantErrno(t, "RESUME by root", resume(), 0)
	d.put(t, p.Handle)
}

func resumeAs(t *testing.T, d *device, uid uint32) error {
	t.Helper()
	c := exec.Command("/guest.test")
	c.Env = []string{"GUEST_ROLE=resume"}
	c.ExtraFiles = []*os.File{os.Stdin, file(t, d.fd)}
	defer c.ExtraFiles[1].Close()
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := c.CombinedOutput()
	if err != nil && strings.Contains(string(out), unix.EPERM.Error()) {
		return unix.EPERM
	}
	return err
}

func resumeOnly() {
	info, err := uapi.GetInfo(4)
	must(err)
	_, err = uapi.DoControl(4, uapi.ControlResume, info.FenceGen)
	must(err)
}

// TestShutdown shuts the machine down during a DMA. The host checks in the kernel's log that the function was stopped.
func TestShutdown(t *testing.T) {
	s := openScene(t)
	s.inFlight(t, newMemory(t, pinPages*page).bytes)
	t.Error(unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF))
}

// TestSupport reads what support needs: the debug page and the tracepoints.
func TestSupport(t *testing.T) {
	_ = unix.Mount("none", "/sys/kernel/debug", "debugfs", 0, "")
	const events = "/sys/kernel/debug/tracing/events/tegra_p2p/enable"
	if b, err := os.ReadFile(events); err != nil || strings.TrimSpace(string(b)) != "1" {
		write(t, events, "1") // not reverted: the kernel patches its code for it, which an emulated machine rarely tolerates
	}
	s := newScene(t)
	if err := uapi.SetHalt(s.fd, []uapi.HaltOp{{Op: uapi.HaltW32, Offset: eduLiveness, Value: 1}}); err != nil {
		t.Fatal(err)
	}
	m := newMemory(t, pinPages*page)
	p, _ := s.mustPin(t, m.bytes)
	call(t, "munmap", unix.SYS_MUNMAP, uintptr(address(m.bytes)), pinPages*page)
	s.revoked.wait(t)
	i := s.info(t)
	said := debugPage(t)
	for _, want := range []string{
		"function " + function + ", pins through ", "protection: strict IOMMU\n", "state: fenced, generation ",
		fmt.Sprintf("fence %d: a pin was revoked, ", i.FenceGen), "open to write: 1 pins (0 live), 0 allocations, ",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in:\n%s", want, said)
		}
	}
	b, err := os.ReadFile("/sys/kernel/debug/tracing/trace")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		fmt.Sprintf("tegra_p2p_pin: tegra_p2p0 handle=%d va=%#x size=16384 segments=1", p.Handle, address(m.bytes)),
		"tegra_p2p_map: tegra_p2p0 slot=0 ", "tegra_p2p_halt: tegra_p2p0 operations=1\n",
		fmt.Sprintf("tegra_p2p_fence: tegra_p2p0 fence=%d why=8 ", i.FenceGen),
		fmt.Sprintf("tegra_p2p_revoke: tegra_p2p0 handle=%d reason=1 fence=%d\n", p.Handle, i.FenceGen),
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %q in:\n%s", want, b)
		}
	}
	s.live(t)
	s.put(t, p.Handle)
}
