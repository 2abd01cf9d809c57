// SPDX-License-Identifier: Apache-2.0

package tegra

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

var (
	_ Pinner = (*Device)(nil)
	_ Fencer = (*Device)(nil)
)

func newTestDevice(t *testing.T) (*Device, *fakeModule) {
	t.Helper()
	m, err := newFakeModule()
	if err != nil {
		t.Fatal(err)
	}
	d, err := newDevice("fake", m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
	if err := d.Resume(1); err != nil {
		t.Fatal(err)
	}
	return d, m
}

func pages(t *testing.T, n int) uintptr {
	t.Helper()
	b, err := unix.Mmap(-1, 0, n*PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return uintptr(unsafe.Pointer(&b[0]))
}

// TestOpenErrors checks that the error for a missing device says what to do.
func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{
		filepath.Join(dir, "none"): "tegracast bind",
		filepath.Join(dir, "file"): "load the module of this release",
		dir:                        "is a directory",
	} {
		if _, err := Open(path); !errors.Is(err, ErrNoDevice) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want it to say %q", path, err, says)
		}
	}
}

func TestOpenRefusesOtherModules(t *testing.T) {
	for name, change := range map[string]func(*uapi.Info){
		"version": func(i *uapi.Info) { i.APIVersion = 1 },
		"pages":   func(i *uapi.Info) { i.PinAlign = 64 << 10 },
	} {
		m, err := newFakeModule()
		if err != nil {
			t.Fatal(err)
		}
		change(&m.what)
		if _, err := newDevice("fake", m); !errors.Is(err, ErrVersion) {
			t.Errorf("%s: %v", name, err)
		}
		if !m.closed {
			t.Errorf("%s: the file stays open", name)
		}
	}
}

func TestWindow(t *testing.T) {
	d, _ := newTestDevice(t)
	if len(d.BARs()) != 1 || d.BARs()[0].Size != fakeBAR {
		t.Fatalf("BARs %+v", d.BARs())
	}
	w := d.BARs()[0]
	w.Write32(fakeBAR-4, 0x12345678)
	if v := w.Read32(fakeBAR - 4); v != 0x12345678 {
		t.Errorf("read back %#x", v)
	}
	for _, off := range []uint32{2, fakeBAR, fakeBAR - 2, math.MaxUint32, math.MaxUint32 - 3} {
		w.Write32(off, 1)
		if v := w.Read32(off); v != math.MaxUint32 {
			t.Errorf("offset %#x reads %#x", off, v)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	w.Write32(0, 1)
	if v := w.Read32(0); v != math.MaxUint32 {
		t.Errorf("a closed device's register reads %#x", v)
	}
}

func TestSegmentsByQuery(t *testing.T) {
	d, m := newTestDevice(t)
	const n = firstSegments + moreSegments + 3
	p, err := d.Pin(pages(t, n), n*PageSize, FromDevice, WriteBack)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Segments) != n || m.calls["query"] != 2 {
		t.Errorf("%d segments by %d queries", len(p.Segments), m.calls["query"])
	}
	for i, s := range p.Segments {
		if want := uint64(1)<<32 + uint64(i)*2*PageSize; s.IOVA != want || s.Len != PageSize {
			t.Fatalf("segment %d is %+v, want it at %#x", i, s, want)
		}
	}
	if err := p.Unpin(); err != nil {
		t.Error(err)
	}
	if len(m.pins) != 0 {
		t.Errorf("the module still has %d pins", len(m.pins))
	}
}

// TestLegacyLine checks that the line is masked when it is raised, and unmasked by the next wait.
func TestLegacyLine(t *testing.T) {
	m, err := newFakeModule()
	if err != nil {
		t.Fatal(err)
	}
	m.what.Flags |= uapi.InfoINTX
	m.what.NIRQs = 1
	d, err := newDevice("fake", m)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	unmasked := func() int {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.calls["unmask"]
	}
	for n := range 5 {
		m.signal(uapi.EventMSI, 0)
		if err := d.Wait(t.Context(), 0); err != nil || unmasked() != n {
			t.Fatalf("%v, unmasked %d times before interrupt %d was served", err, unmasked(), n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if err := d.Wait(ctx, 0); !errors.Is(err, context.DeadlineExceeded) || unmasked() != n+1 {
			t.Fatalf("%v, unmasked %d times after interrupt %d", err, unmasked(), n)
		}
		cancel()
	}
	m.mu.Lock()
	m.fail["control"] = unix.EIO
	m.mu.Unlock()
	m.signal(uapi.EventMSI, 0)
	if err := d.Wait(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if err := d.Wait(t.Context(), 0); !errors.Is(err, unix.EIO) {
		t.Errorf("the line cannot be unmasked: %v", err)
	}
}

func TestWait(t *testing.T) {
	d, m := newTestDevice(t)
	ctx, cancel := context.WithCancel(t.Context())
	for range 3 {
		m.signal(uapi.EventMSI, 1)
	}
	if err := d.Wait(ctx, 1); err != nil {
		t.Fatal(err)
	}
	m.signal(uapi.EventMSI, 2)
	if err := d.Wait(ctx, 2); err != nil {
		t.Fatal(err)
	}
	for _, vector := range []int{-1, 3} {
		if err := d.Wait(ctx, vector); err == nil {
			t.Errorf("vector %d was raised", vector)
		}
	}
	cancel()
	if err := d.Wait(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for i := 0; d.Raised() != 4; i++ { // several may be counted at once, and some only after the first of them was waited for
		if i == 1000 {
			t.Fatalf("%d raises counted of 4", d.Raised())
		}
		time.Sleep(time.Millisecond)
	}
	waited := make(chan error)
	go func() { waited <- d.Wait(context.Background(), 0) }()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := <-waited; !errors.Is(err, ErrClosed) {
		t.Errorf("wait on a closed device: %v", err)
	}
}

func TestUnplug(t *testing.T) {
	d, m := newTestDevice(t)
	p, err := d.Pin(pages(t, 1), PageSize, FromDevice, WriteBack)
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.AllocCoherent(1)
	if err != nil {
		t.Fatal(err)
	}
	var why Reason
	p.OnFree(func(r Reason) { why = r })
	m.unplug()
	select {
	case <-p.Revoked():
	case <-time.After(10 * time.Second):
		t.Fatal("the pin lives on")
	}
	if why != ReasonUnplug {
		t.Errorf("callback said %v", why)
	}
	if err := d.Wait(t.Context(), 0); !errors.Is(err, ErrGone) {
		t.Errorf("wait: %v", err)
	}
	if _, err := d.Pin(p.Addr, PageSize, FromDevice, WriteBack); !errors.Is(err, ErrGone) {
		t.Errorf("pin: %v", err)
	}
	if generation, fenced := d.Fenced(); !fenced || !errors.Is(d.Resume(generation), ErrGone) {
		t.Error("a function that has gone can be resumed")
	}
	if err := p.Unpin(); !errors.Is(err, ErrRevoked) {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestLostState checks that all pins end when the function loses its state, and that pins made after Resume stay.
func TestLostState(t *testing.T) {
	d, m := newTestDevice(t)
	for why, want := range map[uint32]Reason{
		uapi.ErrorLink: ReasonLink, uapi.ErrorFatal: ReasonFatal, uapi.ErrorReset: ReasonReset,
		uapi.ErrorSuspend: ReasonSuspend, uapi.ErrorExposed: ReasonExposed,
	} {
		p, err := d.Pin(pages(t, 1), PageSize, FromDevice, WriteBack)
		if err != nil {
			t.Fatal(err)
		}
		said := make(chan Reason, 1)
		p.OnFree(func(r Reason) { said <- r })
		m.lose(why)
		select {
		case got := <-said:
			if got != want {
				t.Errorf("callback said %v, want %v", got, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the pin lives on")
		}
		generation, fenced := d.Fenced()
		if err := d.Resume(generation); !fenced || err != nil {
			t.Fatal(fenced, err)
		}
		if err := p.Unpin(); !errors.Is(err, ErrRevoked) {
			t.Error(err)
		}
		next, err := d.Pin(pages(t, 1), PageSize, FromDevice, WriteBack)
		if err != nil {
			t.Fatal(err)
		}
		d.endRevoked() // as for an event that arrives late
		if err := next.Unpin(); err != nil {
			t.Errorf("a pin that was made after Resume: %v", err)
		}
	}
	if len(m.pins) != 0 {
		t.Errorf("the module still has %d pins", len(m.pins))
	}
}

func TestHaltAndReset(t *testing.T) {
	d, m := newTestDevice(t)
	if err := d.SetHalt([]uapi.HaltOp{{Op: uapi.HaltW32, BAR: 1, Offset: 8, Value: 1}}); err != nil || len(m.halt) != 1 {
		t.Error(err, m.halt)
	}
	if err := d.Reset(); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("reset without FLR: %v", err)
	}
	if _, err := d.drv.control(uapi.ControlFence, 0); err != nil {
		t.Fatal(err)
	}
	generation, fenced := d.Fenced()
	if !fenced {
		t.Error("not fenced")
	}
	if err := d.Resume(generation); err != nil {
		t.Error(err)
	}
}

// descriptors counts the open file descriptors of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestNothingIsLeft checks that no descriptor is left behind, whatever fails while a device is opened.
func TestNothingIsLeft(t *testing.T) {
	before := descriptors(t)
	for call, want := range map[string]error{"info": ErrNoDevice, "region": ErrGone, "setEvent": ErrInUse, "none": nil} {
		m, err := newFakeModule()
		if err != nil {
			t.Fatal(err)
		}
		m.fail["info"], m.fail["region"], m.fail["setEvent"] = 0, 0, 0
		m.fail[call] = unix.EBUSY
		if call == "region" {
			m.fail[call] = unix.ENODEV
		}
		d, err := newDevice("fake", m)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", call, err, want)
		}
		if err == nil {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors are open, before it were %d", after, before)
	}
}

// TestRevokedWhilePinned checks that memory revoked before Pin has read all of its segments is not handed out.
func TestRevokedWhilePinned(t *testing.T) {
	d, m := newTestDevice(t)
	const n = firstSegments + 1
	addr := pages(t, n)
	m.before["query"] = func() { m.invalidate(addr, PageSize) }
	if p, err := d.Pin(addr, n*PageSize, FromDevice, WriteBack); !errors.Is(err, ErrRevoked) {
		t.Errorf("%v %v", p, err)
	}
	if len(m.pins) != 0 {
		t.Errorf("the module still has %d pins", len(m.pins))
	}
	d, m = newTestDevice(t)
	m.late = true
	if p, err := d.Pin(addr, PageSize, FromDevice, WriteBack); !errors.Is(err, ErrRevoked) {
		t.Errorf("before PIN returned: %v %v", p, err)
	}
	if len(m.pins) != 0 {
		t.Errorf("the module still has %d pins", len(m.pins))
	}
}

// TestPinAgain pins memory whose mapping changes during all tries, and during the first ones.
func TestPinAgain(t *testing.T) {
	d, m := newTestDevice(t)
	m.fail["pin"] = unix.EAGAIN
	if p, err := d.Pin(pages(t, 1), PageSize, ToDevice, WriteBack); !errors.Is(err, unix.EAGAIN) || m.calls["pin"] != 8 {
		t.Errorf("%v %v after %d calls", p, err, m.calls["pin"])
	}
	m.calls["pin"] = 0
	m.before["pin"] = func() {
		if m.fail["pin"] = 0; m.calls["pin"] < 4 {
			m.fail["pin"] = unix.EAGAIN
		}
	}
	p, err := d.Pin(pages(t, 1), PageSize, ToDevice, WriteBack)
	if err != nil || m.calls["pin"] != 5 {
		t.Fatalf("%v after %d calls", err, m.calls["pin"])
	}
	if err := p.Unpin(); err != nil {
		t.Error(err)
	}
}

// TestErrnos checks that the module's errors are wrapped with this package's errors and can still be found.
func TestErrnos(t *testing.T) {
	d, m := newTestDevice(t)
	addr := pages(t, 1)
	for errno, want := range map[unix.Errno]error{
		unix.E2BIG: ErrSize, unix.EFAULT: ErrRange, unix.EMEDIUMTYPE: ErrCacheAttr, unix.ESTALE: ErrFenced, unix.ENODEV: ErrGone,
		unix.ENOMEM: unix.ENOMEM, unix.ENOSPC: unix.ENOSPC, unix.EIO: unix.EIO, unix.EAGAIN: unix.EAGAIN,
	} {
		m.fail["pin"] = errno
		if _, err := d.Pin(addr, PageSize, ToDevice, WriteBack); !errors.Is(err, want) || !errors.Is(err, errno) || errors.Is(err, ErrGeneration) {
			t.Errorf("%v: %v", errno, err)
		}
	}
	m.fail["mmap"] = unix.ENODEV // the function has gone since the allocation
	if _, err := d.AllocCoherent(PageSize); !errors.Is(err, ErrGone) {
		t.Errorf("mapping coherent memory: %v", err)
	}
}
