// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

func TestInfo(t *testing.T) {
	d := open(t).live(t)
	i := d.info(t)
	want := uint32(uapi.InfoIOMMU | uapi.InfoStrict | uapi.InfoCoherent | uapi.InfoIsolatedMSI)
	if i.Flags&^(uapi.InfoNVP2P|uapi.InfoNVP2PBuilt|uapi.InfoNVP2PPresent) != want || i.APIVersion != uapi.APIVersion || i.State != uapi.StateLive {
		t.Errorf("%+v", i)
	}
	if i.Vendor != 0x1234 || i.Device != 0x11e8 || i.DMABits != 28 || i.NIRQs != 1 || i.PinAlign != page {
		t.Errorf("%+v", i)
	}
	st, err := os.Stat(devicePath)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
	for index := range 6 {
		r, err := uapi.GetRegion(d.fd, index)
		if size := map[int]uint64{0: 1 << 20}[index]; err != nil || r.Size != size {
			t.Errorf("BAR %d: %+v %v", index, r, err)
		}
	}
}

func TestDMA(t *testing.T) {
	noLeak(t)
	d := open(t).live(t)
	e := d.edu(t)
	if e.read(eduID) != 0x010000ed {
		t.Fatalf("edu's id is %#x", e.read(eduID))
	}
	t.Run("pin", func(t *testing.T) {
		b := anonymous(t, 4*page)
		p, iova := d.mustPin(t, b)
		if p.NSegs != 1 || p.Attr != uapi.AttrWB {
			t.Errorf("%+v", p)
		}
		e.roundTrip(t, b, iova)
		q := d.query(t, p.Handle)
		if q.State != uapi.PinLive || q.Cookie != 0xc0ffee || q.NSegs != 1 || q.Reason != uapi.ReasonNone {
			t.Errorf("%+v", q)
		}
		if i := d.info(t); i.PinnedBytes != 4*page {
			t.Errorf("%d bytes pinned", i.PinnedBytes)
		}
		d.put(t, p.Handle)
		wantErrno(t, "second PUT", uapi.DoPut(d.fd, p.Handle), unix.ENOENT)
		if i := d.info(t); i.PinnedBytes != 0 || i.State != uapi.StateLive {
			t.Errorf("%+v", i)
		}
	})
	t.Run("coherent memory", func(t *testing.T) {
		a := uapi.Alloc{Size: 2 * page}
		if err := uapi.DoAlloc(d.fd, &a); err != nil {
			t.Fatal(err)
		}
		b := d.mmap(t, a.MmapOffset, a.Size)
		if !bytes.Equal(b, make([]byte, a.Size)) {
			t.Error("new memory is not zero")
		}
		e.roundTrip(t, b, a.IOVA)
		wantErrno(t, "PUT of mapped memory", uapi.DoPut(d.fd, a.Handle), unix.EBUSY)
		if err := unix.Munmap(b); err != nil {
			t.Fatal(err)
		}
		d.put(t, a.Handle)
	})
	t.Run("64 MiB in one segment", func(t *testing.T) {
		b := anonymous(t, 64<<20)
		p, segs, err := d.pin(b, uapi.PinFromDevice)
		if err != nil || len(segs) != 1 || segs[0].Len != 64<<20 {
			t.Fatalf("%v %+v", err, segs)
		}
		d.put(t, p.Handle)
	})
	t.Run("interrupts", func(t *testing.T) {
		for range 20 {
			e.write(eduIRQRaise, 1)
			if n := e.msi.wait(t); n != 1 {
				t.Errorf("%d interrupts", n)
			}
			e.write(eduIRQAck, 1)
		}
		if err := uapi.SetEvent(d.fd, uapi.EventMSI, 0, -1); err != nil {
			t.Fatal(err)
		}
		e.write(eduIRQRaise, 1)
		e.write(eduIRQAck, 1)
		if n := e.msi.count(); n != 0 {
			t.Errorf("%d interrupts after the eventfd was taken away", n)
		}
	})
}

// TestCacheAttribute checks that a pin is mapped with the attribute of its memory, which the module reads from the
// mapping.
func TestCacheAttribute(t *testing.T) {
	noLeak(t)
	d := open(t).live(t)
	e := d.edu(t)
	fd, err := unix.Open("/dev/hostmem", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for attr, name := range []string{"write-back", "write-combined"} {
		t.Run(name, func(t *testing.T) {
			b := mapPages(t, fd, uintptr(attr*page), 2*page, unix.MAP_SHARED)
			defer unmap(t, b, page)
			other := []uint32{uapi.PinExpectWC, uapi.PinExpectWB}[attr]
			_, _, err := d.pin(b, bothWays|other)
			wantErrno(t, "the other attribute", err, unix.EMEDIUMTYPE)
			p, segs, err := d.pin(b, bothWays|(uapi.PinExpectWB|uapi.PinExpectWC)^other)
			if err != nil {
				t.Fatal(err)
			}
			if p.Attr != uint32(attr) {
				t.Errorf("attribute %d", p.Attr)
			}
			e.roundTrip(t, b, segs[0].IOVA)
			view := d.mmap(t, p.MmapOffset, p.Size)
			if !bytes.Equal(view, b) {
				t.Error("the mapping of the pin shows other bytes")
			}
			wantErrno(t, "MADV_DOFORK of the mapping", unix.Madvise(view, unix.MADV_DOFORK), unix.EINVAL)
			wantErrno(t, "PUT of a mapped pin", uapi.DoPut(d.fd, p.Handle), unix.EBUSY)
			if err := unix.Munmap(view); err != nil {
				t.Fatal(err)
			}
			d.put(t, p.Handle)
		})
	}
}
