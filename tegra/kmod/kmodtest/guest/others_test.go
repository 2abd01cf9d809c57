// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// Registers of a virtio function's common configuration (virtio 1.1 §4.1.4.3), which QEMU places at the start of BAR 4.
const (
	virtioSelect = 0x08 // driver_feature_select
	virtioStatus = 0x14 // device_status; a reset clears it
)

// TestReset resets a function that supports resets, while its registers are mapped and memory is pinned for it.
func TestReset(t *testing.T) {
	noLeak(t)
	d := open(t).live(t)
	if d.info(t).Flags&uapi.InfoFLR == 0 {
		t.Fatalf("no function-level reset: %+v", d.info(t))
	}
	r, err := uapi.GetRegion(d.fd, 4)
	if err != nil {
		t.Fatal(err)
	}
	e := &edu{regs: d.mmap(t, r.MmapOffset, r.Size)}
	defer e.close()
	for range times {
		p, _ := d.mustPin(t, anonymous(t, page))
		e.write(virtioStatus, 1)
		if v := e.read(virtioStatus) & 0xff; v != 1 {
			t.Fatalf("status %#x: its registers are elsewhere", v)
		}
		before := d.info(t)
		gen, err := uapi.DoControl(d.fd, uapi.ControlReset, 0)
		if err != nil || gen != before.FenceGen+1 || d.info(t).State != uapi.StateFenced {
			t.Fatalf("RESET: %v, generation %d, %+v", err, gen, d.info(t))
		}
		if v := e.read(virtioStatus) & 0xff; v != 0 {
			t.Fatalf("status %#x after the reset", v)
		}
		_, _, err = d.pin(anonymous(t, page), bothWays)
		wantErrno(t, "PIN after a reset", err, unix.ESTALE)
		d.live(t)
		d.put(t, p.Handle)
	}
}

// reportErrors permits a function or port to send error messages. QEMU 7.2 requires SERR# for this, unlike PCI Express
// 4.0 §6.2.6.
func reportErrors(t *testing.T, function string) {
	t.Helper()
	f, err := os.OpenFile("/sys/bus/pci/devices/"+function+"/config", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var command [2]byte
	if _, err = f.ReadAt(command[:], 4); err == nil {
		command[1] |= 1
		_, err = f.WriteAt(command[:], 4)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// inject makes the host report a link error of the function.
func inject(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile("/run/inject.new", []byte(name), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename("/run/inject.new", "/run/inject"); err != nil {
		t.Fatal(err)
	}
}

// TestLinkError makes the host report link errors of the function. Each must fence it and notify its users.
func TestLinkError(t *testing.T) {
	noLeak(t)
	d := open(t).live(t)
	failed := d.event(t, uapi.EventError)
	reportErrors(t, function)
	reportErrors(t, os.Getenv("GUEST_PORT"))
	for range times {
		inject(t, "COMP_TIME")
		failed.wait(t)
		if i := d.info(t); i.State != uapi.StateFenced || i.Error != uapi.ErrorLink {
			t.Fatalf("%+v", i)
		}
		d.live(t)
		p, _ := d.mustPin(t, anonymous(t, page))
		d.put(t, p.Handle)
	}
}

// TestExposed tests a function that its IOMMU does not isolate: it shares its group, or has ATS.
func TestExposed(t *testing.T) {
	permitted(t)
	noLeak(t)
	d := open(t).live(t)
	if i := d.info(t); i.Flags&(uapi.InfoUnsafe|uapi.InfoStrict) != uapi.InfoUnsafe|uapi.InfoStrict {
		t.Fatalf("%+v", i)
	}
	m := newMemory(t, page)
	p, _, err := d.pin(m.bytes, bothWays)
	if err != nil || !busMaster(t) {
		t.Fatalf("%v, bus master %v", err, busMaster(t))
	}
	m.free(t)
	if busMaster(t) {
		t.Error("bus mastering goes on after a revocation")
	}
	d.live(t)
	d.put(t, p.Handle)
	allowUnsafe(t, "0")
}
