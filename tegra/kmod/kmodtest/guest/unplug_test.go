// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

func unbind(t *testing.T) {
	t.Helper()
	if err := os.WriteFile("/sys/bus/pci/drivers/tegra_p2p/unbind", []byte(function), 0); err != nil {
		t.Fatal(err)
	}
}

func bind(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(pciDevice+"driver_override", []byte("tegra_p2p"), 0); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("/sys/bus/pci/drivers_probe", []byte(function), 0); err != nil {
		t.Fatal(err)
	}
}

// orphan is an open device with all its objects, whose function is removed.
type orphan struct {
	*scene
	m        *memory
	p        uapi.Pin
	iova     uint64
	coherent []byte
	failed   *event
}

func newOrphan(t *testing.T) *orphan {
	t.Helper()
	s := openScene(t)
	d := s.device
	o := &orphan{scene: s, m: newMemory(t, pinPages*page)}
	o.failed = d.event(t, uapi.EventError)
	a := uapi.Alloc{Size: page}
	if err := uapi.DoAlloc(d.fd, &a); err != nil {
		t.Fatal(err)
	}
	o.coherent = d.mmap(t, a.MmapOffset, a.Size)
	o.coherent[0] = 1
	o.p, o.iova = o.mustPin(t, o.m.bytes)
	return o
}

// gone checks what remains of it: error answers, no memory, and registers of ones.
func (o *orphan) gone(t *testing.T) {
	t.Helper()
	o.failed.wait(t)
	o.revoked.wait(t)
	if i := o.info(t); i.State != uapi.StateGone || i.Error != uapi.ErrorUnplug {
		t.Errorf("%+v", i)
	}
	if q := o.query(t, o.p.Handle); q.State != uapi.PinRevoked || q.Reason != uapi.ReasonUnplug {
		t.Errorf("%+v", q)
	}
	_, _, err := o.pin(o.m.bytes, bothWays)
	wantErrno(t, "PIN", err, unix.ENODEV)
	wantErrno(t, "PUT", uapi.DoPut(o.fd, o.p.Handle), unix.ENODEV)
	wantErrno(t, "ALLOC", uapi.DoAlloc(o.fd, &uapi.Alloc{Size: page}), unix.ENODEV)
	_, err = uapi.GetRegion(o.fd, 0)
	wantErrno(t, "GET_REGION", err, unix.ENODEV)
	_, err = uapi.DoControl(o.fd, uapi.ControlResume, 0)
	wantErrno(t, "RESUME", err, unix.ENODEV)
	wantErrno(t, "SET_HALT", uapi.SetHalt(o.fd, []uapi.HaltOp{{}}), unix.ENODEV)
	wantErrno(t, "SET_EVENT", uapi.SetEvent(o.fd, uapi.EventError, 0, -1), unix.ENODEV)
	_, err = unix.Mmap(o.fd, 0, page, unix.PROT_READ, unix.MAP_SHARED)
	wantErrno(t, "mmap", err, unix.ENODEV)
	if v := o.edu.read(eduID); v != ^uint32(0) {
		t.Errorf("a register of a function that has gone reads %#x", v)
	}
	o.edu.write(eduLiveness, 1) // must have no effect, and not show elsewhere
	if v := o.edu.read(eduLiveness + page); v != ^uint32(0) {
		t.Errorf("another page of registers reads %#x after a write", v)
	}
	if o.coherent[0] != 0xff {
		t.Errorf("coherent memory reads %#x", o.coherent[0])
	}
}

func (o *orphan) drop(t *testing.T) {
	t.Helper()
	if err := unix.Munmap(o.coherent); err != nil {
		t.Error(err)
	}
	o.m.free(t)
	o.edu.close()
	o.close()
}

func TestUnbind(t *testing.T) {
	noLeak(t)
	repeat(t, func() bool {
		o := newOrphan(t)
		o.edu.start(fromDevice, o.iova)
		unbind(t)
		flying := o.edu.flying()
		o.gone(t)
		time.Sleep(eduTime) // its registers are inaccessible
		o.m.check(t, flying)
		bind(t)
		o.drop(t)
		next := open(t)
		if i := next.info(t); i.State != uapi.StateFenced {
			t.Errorf("a function whose engine nobody has stopped: %+v", i)
		}
		next.edu(t).close()
		next.close()
		return flying
	})
	newScene(t).usable(t)
}

// TestUnbindStops revokes a thousand pins while a DMA to the first of them ends. Bus mastering was turned off before, so
// the IOMMU has nothing to report. A report fails the test at the machine's end.
func TestUnbindStops(t *testing.T) {
	noLeak(t)
	const pins, rounds = 1000, 10
	for round := range time.Duration(rounds) {
		o := newOrphan(t)
		b := anonymous(t, pins*page)
		for i := range pins {
			o.mustPin(t, b[i*page:(i+1)*page])
		}
		o.edu.start(fromDevice, o.iova)
		time.Sleep(round * eduTime / rounds)
		unbind(t)
		o.gone(t)
		time.Sleep(eduTime) // the next holder would let it continue, and be reported
		bind(t)
		o.drop(t)
	}
	newScene(t).usable(t)
}

// TestUnbindAgainstClose races an unbind with the last close. Whichever revokes the memory, the function must not access
// it afterwards.
func TestUnbindAgainstClose(t *testing.T) {
	noLeak(t)
	repeat(t, func() bool {
		o := newOrphan(t)
		if err := unix.Munmap(o.coherent); err != nil {
			t.Fatal(err)
		}
		o.edu.start(fromDevice, o.iova)
		o.edu.close()
		closed := make(chan struct{})
		go func() { defer close(closed); o.close() }()
		unbind(t)
		<-closed
		flying := o.edu.flying()
		time.Sleep(eduTime)
		o.m.check(t, flying)
		o.m.free(t)
		bind(t)
		return flying
	})
	newScene(t).usable(t)
}

// TestHotUnplug waits for the host to remove the card, which takes 5 s: longer than any DMA of edu.
func TestHotUnplug(t *testing.T) {
	noLeak(t)
	o := newOrphan(t)
	if err := os.WriteFile("/run/unplug", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o.gone(t)
	o.drop(t)
}

// TestSlotOff turns off the slot's power during a DMA, which removes the card at once, and creates a file if the DMA was
// still in progress.
func TestSlotOff(t *testing.T) {
	noLeak(t)
	o := newOrphan(t)
	o.edu.start(fromDevice, o.iova)
	off := make(chan error, 1)
	go func() { off <- os.WriteFile("/sys/bus/pci/slots/0/power", []byte("0"), 0) }()
	for o.query(t, o.p.Handle).State == uapi.PinLive {
		time.Sleep(time.Millisecond)
	}
	flying := o.edu.flying()
	if err := <-off; err != nil {
		t.Fatal(err)
	}
	o.gone(t)
	o.m.check(t, flying)
	o.drop(t)
	if flying {
		if err := os.WriteFile("/run/flying", nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUsable(t *testing.T) { newScene(t).usable(t) }

// TestUnbindTakesAllAtOnce touches allocations for the first time while the function is removed: if one reads as ones,
// registers must, too. Otherwise a program could write descriptors that are lost, and start the engine on memory without
// them.
func TestUnbindTakesAllAtOnce(t *testing.T) {
	noLeak(t)
	const allocations = 400
	o := newOrphan(t)
	var untouched [][]byte
	for range allocations {
		a := uapi.Alloc{Size: page}
		if err := uapi.DoAlloc(o.fd, &a); err != nil {
			t.Fatal(err)
		}
		untouched = append(untouched, o.mmap(t, a.MmapOffset, a.Size))
	}
	unbound := make(chan error, 1)
	go func() { unbound <- os.WriteFile("/sys/bus/pci/drivers/tegra_p2p/unbind", []byte(function), 0) }()
	first := -1
	for i := range untouched {
		if untouched[i][0] == 0xff && first < 0 {
			first = i
			if v := o.edu.read(eduID); v != ^uint32(0) {
				t.Errorf("allocation %d has gone, and a register reads %#x", i, v)
			}
		}
		time.Sleep(200 * time.Microsecond)
	}
	if err := <-unbound; err != nil {
		t.Fatal(err)
	}
	if first < 0 {
		t.Log("the function went after the last allocation was touched")
	}
	o.gone(t)
	for _, b := range untouched {
		if err := unix.Munmap(b); err != nil {
			t.Error(err)
		}
	}
	bind(t)
	o.drop(t)
	newScene(t).usable(t)
}
