// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"encoding/binary"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

const taintUser = 1 << 6

// busMaster returns bit 2 of the function's command register.
func busMaster(t *testing.T) bool {
	t.Helper()
	b, err := os.ReadFile(pciDevice + "config")
	if err != nil || len(b) < 6 {
		t.Fatal(err)
	}
	return binary.LittleEndian.Uint16(b[4:])&4 != 0
}

func allowUnsafe(t *testing.T, yes string) {
	t.Helper()
	if err := os.WriteFile("/sys/module/tegra_p2p/parameters/allow_unsafe", []byte(yes), 0); err != nil {
		t.Fatal(err)
	}
}

func openAs(t *testing.T, uid uint32) error {
	t.Helper()
	c := exec.Command("/guest.test")
	c.Env = []string{"GUEST_ROLE=open", "GUEST_DEVICE=" + devicePath}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := c.CombinedOutput()
	if err != nil && strings.Contains(string(out), unix.EPERM.Error()) {
		return unix.EPERM
	}
	return err
}

func openOnly() {
	_, err := unix.Open(devicePath, unix.O_RDWR|unix.O_CLOEXEC, 0)
	must(err)
}

// permitted checks which processes may open a function that no IOMMU isolates: none until the administrator permits it,
// and then those with CAP_SYS_RAWIO.
func permitted(t *testing.T) {
	t.Helper()
	wantErrno(t, "open by root", openAs(t, 0), unix.EPERM)
	allowUnsafe(t, "1")
	if err := os.Chmod(devicePath, 0o666); err != nil {
		t.Fatal(err)
	}
	wantErrno(t, "open by nobody", openAs(t, 65534), unix.EPERM)
	wantErrno(t, "open by root with allow_unsafe", openAs(t, 0), 0)
	b, err := os.ReadFile("/proc/sys/kernel/tainted")
	if err != nil {
		t.Fatal(err)
	}
	var taint uint64
	for _, c := range strings.TrimSpace(string(b)) {
		taint = taint*10 + uint64(c-'0')
	}
	if taint&taintUser == 0 {
		t.Errorf("the kernel is not tainted: %d", taint)
	}
}

// TestUnsafe tests a virtio function without an IOMMU: the fence turns off bus mastering, and the halt list writes to its
// registers.
func TestUnsafe(t *testing.T) {
	permitted(t)
	noLeak(t)
	d := open(t)
	if busMaster(t) {
		t.Error("bus mastering before the fence has ended")
	}
	i := d.live(t).info(t)
	if i.Flags&(uapi.InfoUnsafe|uapi.InfoIOMMU|uapi.InfoStrict) != uapi.InfoUnsafe || i.NIRQs < 2 || i.DMABits != 64 {
		t.Fatalf("%+v", i)
	}
	r, err := uapi.GetRegion(d.fd, 4)
	if err != nil {
		t.Fatal(err)
	}
	if r.Flags != uapi.RegionMmap {
		t.Errorf("%+v", r)
	}
	regs := d.registers(t)
	defer regs.close()
	testMSIXTable(t, d)
	for n := range uint32(times) {
		op := uapi.HaltOp{BAR: 4, Offset: virtioSelect, Value: uint64(n + 1)}
		if err := uapi.SetHalt(d.fd, []uapi.HaltOp{op}); err != nil {
			t.Fatal(err)
		}
		m := newMemory(t, pinPages*page)
		p, segs, err := d.pin(m.bytes, bothWays)
		if err != nil || len(segs) == 0 || !busMaster(t) {
			t.Fatalf("%v, %d segments, bus master %v", err, len(segs), busMaster(t))
		}
		m.free(t)
		if busMaster(t) || regs.read(virtioSelect) != n+1 {
			t.Fatalf("after the revocation: bus master %v, halt list wrote %d", busMaster(t), regs.read(virtioSelect))
		}
		d.live(t)
		d.put(t, p.Handle)
	}
	allowUnsafe(t, "0")
	_, _, err = d.pin(anonymous(t, page), bothWays)
	wantErrno(t, "PIN when it is no longer allowed", err, unix.EPERM)
	allowUnsafe(t, "1")
}

// testMSIXTable checks that the table reads as ones wherever its BAR is mapped.
func testMSIXTable(t *testing.T, d *device) {
	t.Helper()
	r, err := uapi.GetRegion(d.fd, 1)
	if err != nil {
		t.Fatal(err)
	}
	table := d.mmap(t, r.MmapOffset, page)
	if v := atomic.LoadUint32((*uint32)(unsafe.Pointer(&table[0]))); v != ^uint32(0) {
		t.Errorf("the MSI-X table reads %#x", v)
	}
}

// TestLazy tests a domain with deferred unmaps.
func TestLazy(t *testing.T) { weakIOMMU(t) }

// TestNoRemapping tests an x86 IOMMU without interrupt remapping: a function's write can be any interrupt.
func TestNoRemapping(t *testing.T) { weakIOMMU(t) }

// weakIOMMU tests a function behind an insufficient IOMMU: it counts as unprotected, and turning off bus mastering stops
// its DMA.
func weakIOMMU(t *testing.T) {
	permitted(t)
	noLeak(t)
	s := openScene(t)
	d := s.device
	if i := d.info(t); i.Flags&(uapi.InfoUnsafe|uapi.InfoIOMMU|uapi.InfoStrict) != uapi.InfoUnsafe|uapi.InfoIOMMU {
		t.Fatalf("%+v", i)
	}
	repeat(t, func() bool {
		m := newMemory(t, pinPages*page)
		p := s.inFlight(t, m.bytes)
		call(t, "munmap", unix.SYS_MUNMAP, uintptr(address(m.bytes)), pinPages*page)
		flying := s.edu.flying()
		if busMaster(t) {
			t.Fatal("bus mastering goes on")
		}
		s.edu.idle()
		m.check(t, flying)
		m.free(t)
		s.live(t)
		s.put(t, p.Handle)
		return flying
	})
	s.usable(t)
}

// TestHabits makes the provider misbehave.
func TestHabits(t *testing.T) {
	d := open(t).live(t)
	if !nvp2p(t, d) {
		return // pin_user_pages has no bad habits
	}
	noLeak(t)
	uninterrupted(t)
	habit := func(name, value string) {
		t.Helper()
		if err := os.WriteFile("/sys/module/nvp2p/parameters/"+name, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	b := anonymous(t, 2*page)
	for name, want := range map[string]unix.Errno{
		"null_mapping": unix.EIO, "remap": unix.EAGAIN, "foreign_version": unix.EOPNOTSUPP,
		"foreign_page_size": unix.EOPNOTSUPP, "no_notifier": unix.EAGAIN,
	} {
		habit(name, "1")
		_, _, err := d.pin(b, bothWays)
		wantErrno(t, name, err, want)
		p, _ := d.mustPin(t, b)
		d.put(t, p.Handle)
	}
}
