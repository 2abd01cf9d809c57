// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"os"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

func (d *device) export(t *testing.T, handle uint32) int {
	t.Helper()
	fd, err := uapi.DoExport(d.fd, handle)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

func (d *device) imported(fd int, flags uint32) (uapi.Import, []uapi.Segment, error) {
	segs := make([]uapi.Segment, 8)
	m := uapi.Import{Flags: flags, Fd: int32(fd), Cookie: 0xb0f}
	err := uapi.DoImport(d.fd, &m, segs)
	return m, segs[:min(len(segs), int(m.NSegs))], err
}

// second is another edu, at $GUEST_SECOND with the device file $GUEST_SECOND_DEVICE.
func second(t *testing.T) *scene {
	t.Helper()
	path := os.Getenv("GUEST_SECOND_DEVICE")
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	d := &device{fd}
	t.Cleanup(d.close)
	e := d.edu(t)
	d.live(t)
	return &scene{device: d, edu: e, revoked: d.event(t, uapi.EventRevoke), nv: nvp2p(t, d)}
}

// TestDMABuf gives a pin of one function to another: both move the same bytes, and the end of the pin is its revocation.
func TestDMABuf(t *testing.T) {
	s := newScene(t)
	o := second(t)
	end := map[string]func(t *testing.T, m *memory, p uapi.Pin){
		"PUT": func(t *testing.T, _ *memory, p uapi.Pin) { s.put(t, p.Handle) },
		"munmap": func(t *testing.T, m *memory, p uapi.Pin) {
			call(t, "munmap", unix.SYS_MUNMAP, uintptr(address(m.bytes)), pinPages*page)
			s.revoked.wait(t)
			s.live(t)
			s.put(t, p.Handle)
		},
	}
	for name, act := range end {
		t.Run(name, func(t *testing.T) {
			m := newMemory(t, pinPages*page)
			p, iova := s.mustPin(t, m.bytes)
			fd := s.export(t, p.Handle)
			b, segs, err := o.imported(fd, bothWays)
			if err != nil || b.Size != pinPages*page || len(segs) == 0 {
				t.Fatalf("%+v %v %v", b, segs, err)
			}
			if q := o.query(t, b.Handle); q.State != uapi.PinLive || q.Cookie != 0xb0f {
				t.Errorf("%+v", q)
			}
			s.edu.roundTrip(t, m.bytes, iova)
			o.edu.roundTrip(t, m.bytes, segs[0].IOVA)
			o.edu.start(fromDevice, segs[0].IOVA)
			copy(m.pages, make([]byte, len(m.pages)))
			act(t, m, p)
			flying := o.edu.flying()
			o.revoked.wait(t)
			if q := o.query(t, b.Handle); q.State != uapi.PinRevoked || o.info(t).State != uapi.StateFenced {
				t.Errorf("%+v, with %+v", q, o.info(t))
			}
			o.edu.finish(t)
			for i, v := range m.pages {
				if v != 0 && flying {
					t.Fatalf("byte %d was written after the end of the pin: %#x", i, v)
				}
			}
			_, _, err = o.live(t).imported(fd, bothWays)
			wantErrno(t, "IMPORT of what has ended", err, unix.EIO)
			o.put(t, b.Handle)
		})
	}
	s.usable(t)
	o.usable(t)
}

// A dma-buf keeps its pages and its rights, and is no way to them for programs.
func TestDMABufRights(t *testing.T) {
	s := newScene(t)
	o := second(t)
	b := anonymous(t, page)
	if err := unix.Mprotect(b, unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	p, _, err := s.pin(b, uapi.PinToDevice)
	if err != nil {
		if !s.nv {
			t.Fatal(err)
		}
		t.Skip("NEEDS a provider that pins memory that may only be read")
	}
	fd := s.export(t, p.Handle)
	_, _, err = o.imported(fd, uapi.PinFromDevice)
	wantErrno(t, "IMPORT of memory that may only be read, to write", err, unix.EACCES)
	r, _, err := o.imported(fd, uapi.PinToDevice)
	if err != nil {
		t.Fatal(err)
	}
	for _, prot := range []int{unix.PROT_READ, unix.PROT_READ | unix.PROT_WRITE} {
		if _, err := unix.Mmap(fd, 0, page, prot, unix.MAP_SHARED); err == nil {
			t.Errorf("the dma-buf can be mapped with rights %d", prot)
		}
	}
	_, err = uapi.DoExport(o.fd, r.Handle)
	wantErrno(t, "EXPORT of an import", err, unix.EOPNOTSUPP)
	_, err = unix.Mmap(o.fd, int64(8+uint64(r.Handle))<<40, page, unix.PROT_READ, unix.MAP_SHARED)
	wantErrno(t, "mmap of an import", err, unix.EOPNOTSUPP)
	_, err = uapi.DoExport(s.fd, 12345)
	wantErrno(t, "EXPORT of nothing", err, unix.ENOENT)
	for name, fd := range map[string]int{"no descriptor": 999, "a device": s.fd} {
		if _, _, err := s.imported(fd, bothWays); !errors.Is(err, unix.EBADF) && !errors.Is(err, unix.EINVAL) {
			t.Errorf("IMPORT of %s: %v", name, err)
		}
	}
	again := s.export(t, p.Handle)
	r2, _, err := o.imported(again, uapi.PinToDevice)
	wantErrno(t, "a second IMPORT", err, 0)
	o.put(t, r2.Handle)
	o.put(t, r.Handle)
	s.put(t, p.Handle)
}

// TestUdmabuf imports memory that another driver exports, where the kernel has that driver.
func TestUdmabuf(t *testing.T) {
	u, err := os.OpenFile("/dev/udmabuf", os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("NEEDS a kernel with CONFIG_UDMABUF, as Debian's 6.12 is")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	s := newScene(t)
	const size = 2 * page
	memfd, err := unix.MemfdCreate("udmabuf", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(memfd)
	if err := unix.Ftruncate(memfd, size); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(memfd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		t.Fatal(err)
	}
	create := struct {
		memfd, flags uint32
		offset, size uint64
	}{memfd: uint32(memfd), flags: 1, size: size}
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, u.Fd(), 0x40187542, uintptr(unsafe.Pointer(&create))) // UDMABUF_CREATE
	if errno != 0 {
		t.Fatal(errno)
	}
	defer unix.Close(int(fd))
	b, segs, err := s.imported(int(fd), bothWays)
	if err != nil || b.Size != size {
		t.Fatalf("%+v %v", b, err)
	}
	view, err := unix.Mmap(memfd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(view) }()
	if len(segs) == 1 {
		s.edu.roundTrip(t, view, segs[0].IOVA)
	}
	s.edu.start(fromDevice, segs[0].IOVA)
	copy(view, make([]byte, size))
	s.put(t, b.Handle)
	flying := s.edu.flying()
	time.Sleep(2 * eduTime)
	for i, v := range view {
		if v != 0 && flying {
			t.Fatalf("byte %d was written after PUT: %#x", i, v)
		}
	}
	s.edu.idle()
	s.usable(t)
}
