// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// alias tries to map memory that the caller may only read for writing, by a pin. It returns nil if that is refused, as it
// must be.
func (d *device) alias(t *testing.T, b []byte) []byte {
	t.Helper()
	p, _, err := d.live(t).pin(b, uapi.PinToDevice)
	if err != nil {
		wantErrno(t, "PIN of read-only memory", err, unix.EFAULT) // nv-p2p knows no direction
		return nil
	}
	t.Cleanup(func() { _ = uapi.DoPut(d.fd, p.Handle) })
	view, errno := tryMapping(d.fd, p.MmapOffset, len(b), readWrite, unix.MAP_SHARED)
	if errno != 0 {
		if errno != unix.EACCES && errno != unix.EOPNOTSUPP {
			t.Errorf("mmap for writing: %v, want %v or %v", errno, unix.EACCES, unix.EOPNOTSUPP)
		}
		view, errno = tryMapping(d.fd, p.MmapOffset, len(b), unix.PROT_READ, unix.MAP_SHARED)
		wantErrno(t, "mmap for reading", errnoOf(errno), unix.EOPNOTSUPP)
		if errno != 0 {
			return nil
		}
		err := unix.Mprotect(view, readWrite)
		wantErrno(t, "mprotect", err, unix.EACCES)
		if err != nil {
			unmap(t, view, 0)
			return nil
		}
	} else {
		t.Error("a pin of read-only memory was mapped for writing")
	}
	t.Cleanup(func() { unmap(t, view, 0) })
	return view
}

// TestReadOnlyFile checks that a world-readable file of root cannot be overwritten.
func TestReadOnlyFile(t *testing.T) {
	asRoot(t, ownedFile, strings.Repeat(ownedText, kindSize/len(ownedText)+1))
	asNobody(t, func(t *testing.T, d *device) {
		fd := owned(t)
		view := d.alias(t, mapping(t, fd, page, unix.PROT_READ, unix.MAP_SHARED))
		if view != nil {
			copy(view, "nobody wrote this")
		}
		got := make([]byte, 16)
		if _, err := unix.Pread(fd, got, 0); err != nil || !strings.HasPrefix(ownedText, string(got)) {
			t.Errorf("root's file says %q, %v", got, err)
		}
	})
}

// TestSealed checks that memory sealed against writing does not change.
func TestSealed(t *testing.T) {
	asNobody(t, func(t *testing.T, d *device) {
		b := sealed(t)
		if view := d.alias(t, b); view != nil {
			view[0] = 0x5a
		}
		if b[0] != 0 {
			t.Errorf("sealed memory says %#x", b[0])
		}
	})
}

// TestZeroPage checks that the kernel's shared page of zeros stays zero.
func TestZeroPage(t *testing.T) {
	asNobody(t, func(t *testing.T, d *device) {
		const private = unix.MAP_PRIVATE | unix.MAP_ANON
		for _, prot := range []int{unix.PROT_READ, readWrite} {
			b, fresh := mapping(t, -1, page, prot, private), mapping(t, -1, page, unix.PROT_READ, private)
			p, _, err := d.live(t).pin(b, uapi.PinToDevice)
			if err != nil {
				continue // TestKinds checks whether it may be refused
			}
			view, errno := tryMapping(d.fd, p.MmapOffset, page, readWrite, unix.MAP_SHARED)
			if errno == 0 {
				t.Error("a pin of untouched memory was mapped for writing")
				view[page/2] = 0x5a
			}
			if fresh[page/2] != 0 {
				t.Errorf("memory that was never written says %#x", fresh[page/2])
			}
			if errno == 0 {
				view[page/2] = 0
				unmap(t, view, 0)
			}
			d.live(t).put(t, p.Handle)
		}
	})
}

// TestVDSO checks that the code that the kernel shares with all processes does not change. Byte 15 of an ELF header is
// padding.
func TestVDSO(t *testing.T) {
	asNobody(t, func(t *testing.T, d *device) {
		view := d.alias(t, vdso(t))
		if view == nil {
			return
		}
		old := view[15]
		view[15] = 0x77
		c := exec.Command("/guest.test")
		c.Env = []string{"GUEST_ROLE=vdso"}
		out, err := c.CombinedOutput()
		view[15] = old
		t.Errorf("another process's vDSO has byte %s, %v", out, err)
	})
}

func printVDSO() {
	b, err := os.ReadFile("/proc/self/auxv")
	must(err)
	for ; len(b) >= 16; b = b[16:] {
		if binary.NativeEndian.Uint64(b) == 33 {
			fmt.Printf("%#x", bytesAt(uintptr(binary.NativeEndian.Uint64(b[8:])), page)[15])
		}
	}
}

// TestStale removes pages from their file while the mapping of a pin exists. With a module that maps such pins, the
// kernel gives the pages to another user while they are mapped.
func TestStale(t *testing.T) {
	const size = 64 * page
	for name, take := range map[string]func(t *testing.T, fd int, b []byte){
		"truncate": func(t *testing.T, fd int, _ []byte) {
			if err := unix.Ftruncate(fd, 0); err != nil {
				t.Error(err)
			}
		},
		"punch": func(t *testing.T, fd int, _ []byte) {
			if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, size); err != nil {
				t.Error(err)
			}
		},
		"evict": func(t *testing.T, fd int, b []byte) {
			unmap(t, b, 0)
			if err := unix.Dup2(int(os.Stdin.Fd()), fd); err != nil { // the file's last reference
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			asNobody(t, func(t *testing.T, d *device) {
				fd := memfd(t, size, 0)
				b, errno := tryMapping(fd, 0, size, readWrite, unix.MAP_SHARED)
				wantErrno(t, "mmap of memory", errnoOf(errno), 0)
				for i := range b {
					b[i] = 0x11
				}
				p, _, err := d.live(t).pin(b, bothWays)
				if err != nil {
					t.Fatal(err)
				}
				view, errno := tryMapping(d.fd, p.MmapOffset, size, readWrite, unix.MAP_SHARED)
				wantErrno(t, "mmap of the pin", errnoOf(errno), unix.EOPNOTSUPP)
				take(t, fd, b)
				if errno == 0 {
					stale(t, view)
				}
				d.live(t).put(t, p.Handle)
			})
		})
	}
}

// stale reports what a mapping shows whose pages may belong to another user.
func stale(t *testing.T, view []byte) {
	time.Sleep(time.Second) // a worker drops references
	secret := mapping(t, -1, 16<<20, readWrite, unix.MAP_PRIVATE|unix.MAP_ANON)
	for i := range secret {
		secret[i] = 0x5e
	}
	if n := bytes.Count(view, []byte{0x5e}); n > 0 {
		t.Errorf("%d bytes of a stale mapping are other memory's", n)
	}
	unmap(t, view, 0)
}

// TestHugeView maps the pin of a huge page in small pages, and removes the huge page.
func TestHugeView(t *testing.T) {
	asRoot(t, "/proc/sys/vm/nr_hugepages", "4")
	asNobody(t, func(t *testing.T, d *device) {
		b := hugetlb(t)
		p, _, err := d.live(t).pin(b, bothWays)
		if err != nil {
			t.Fatal(err)
		}
		view, errno := tryMapping(d.fd, p.MmapOffset, len(b), readWrite, unix.MAP_SHARED)
		wantErrno(t, "mmap of the pin", errnoOf(errno), unix.EOPNOTSUPP)
		if errno == 0 {
			view[page] = 1
			unmap(t, view, 0)
		}
		d.live(t).put(t, p.Handle)
	})
	asRoot(t, "/proc/sys/vm/nr_hugepages", "0")
}

// msixTable returns the place of the function's MSI-X table (PCI 3.0 §6.8.2).
func msixTable(t *testing.T) (bar uint32, offset, size uint64) {
	t.Helper()
	const capabilities, msix = 0x34, 0x11
	b, err := os.ReadFile(pciDevice + "config")
	if err != nil {
		t.Fatal(err)
	}
	for at := int(b[capabilities]); at != 0 && at+12 <= len(b); at = int(b[at+1]) {
		if b[at] == msix {
			table := binary.LittleEndian.Uint32(b[at+4:])
			return table & 7, uint64(table &^ 7), 16 * (1 + uint64(binary.LittleEndian.Uint16(b[at+2:])&0x7ff))
		}
	}
	t.Fatal("the function has no MSI-X table")
	return 0, 0, 0
}

// TestHaltMSIX lets halt lists try what mappings of the table must not: its addresses and data belong to the kernel. It
// needs a function with MSI-X, which edu lacks.
func TestHaltMSIX(t *testing.T) {
	if !isNobody() {
		bar, table, size := msixTable(t)
		t.Setenv("GUEST_TABLE", fmt.Sprint(bar, table, size))
	}
	asNobody(t, func(t *testing.T, d *device) {
		var bar uint32
		var table, size uint64
		if _, err := fmt.Sscan(os.Getenv("GUEST_TABLE"), &bar, &table, &size); err != nil {
			t.Fatal(err)
		}
		first, last := table&^(page-1), (table+size-1)|(page-1)
		for _, offset := range []uint64{first, table, table + 8, table + size - 4, last - 3} {
			for _, op := range []uapi.HaltOp{
				{Op: uapi.HaltW32, Value: 0xdeadbeef},
				{Op: uapi.HaltPoll32, Mask: 1},
				{Op: uapi.HaltW64, Value: 0xdeadbeef},
			} {
				op.BAR, op.Offset = bar, offset
				if op.Op == uapi.HaltW64 {
					op.Offset &^= 7
				}
				harmless := uapi.HaltOp{Op: uapi.HaltPoll32, BAR: 4, Offset: 0x10, Mask: 1}
				err := uapi.SetHalt(d.fd, []uapi.HaltOp{harmless, op})
				wantErrno(t, fmt.Sprintf("SET_HALT of %+v", op), err, unix.EACCES)
			}
		}
		wantErrno(t, "SET_HALT of another BAR", uapi.SetHalt(d.fd, []uapi.HaltOp{{Op: uapi.HaltPoll32, BAR: 4, Offset: 0x10, Mask: 1}}), 0)
		wantErrno(t, "SET_HALT of nothing", uapi.SetHalt(d.fd, nil), 0)
	})
}

// TestDummy writes to registers of a function that is gone. Other readers must still read ones.
func TestDummy(t *testing.T) {
	noLeak(t)
	s := openScene(t)
	a := uapi.Alloc{Size: 2 * page}
	if err := uapi.DoAlloc(s.fd, &a); err != nil {
		t.Fatal(err)
	}
	coherent := s.mmap(t, a.MmapOffset, a.Size)
	other := s.mmap(t, 0, 1<<20)
	unbind(t)
	defer bind(t)
	for at := 0; at < len(other); at += page { // some are read before, some not
		if at%(2*page) == 0 && s.edu.read(at) != ^uint32(0) {
			t.Errorf("register %#x of a function that has gone reads %#x", at, s.edu.read(at))
		}
	}
	written := []int{0, 0x2000, len(other) - page}
	for _, at := range written {
		s.edu.write(at, 0x12345678)
	}
	coherent[page] = 0x12
	for at := 0; at < len(other); at += page {
		if v := s.edu.read(at); v != ^uint32(0) && !slices.Contains(written, at) {
			t.Errorf("register %#x reads %#x after others were written", at, v)
			break
		}
	}
	if v := *(*uint32)(unsafe.Pointer(&coherent[0])); v != ^uint32(0) {
		t.Errorf("coherent memory reads %#x after another page was written", v)
	}
	for _, b := range [][]byte{coherent, other} {
		if err := unix.Munmap(b); err != nil {
			t.Error(err)
		}
	}
	s.edu.close()
	s.close()
}

// TestManyPins closes the device with a thousand pins. The time for pinning them shows the machine's speed. A machine
// that is disturbed during the close gets two more tries.
func TestManyPins(t *testing.T) {
	noLeak(t)
	const pins = 1000
	b := anonymous(t, pins*page)
	for try := 1; ; try++ {
		d := open(t).live(t)
		began := time.Now()
		for i := range pins {
			d.mustPin(t, b[i*page:][:page])
		}
		pinned := time.Since(began)
		began = time.Now()
		d.close()
		took, limit := time.Since(began), max(500*time.Millisecond, 4*pinned)
		t.Logf("%d pins in %v, closed in %v", pins, pinned.Round(time.Millisecond), took.Round(time.Millisecond))
		if took <= limit {
			return
		}
		if try == 3 {
			t.Fatalf("%d pins took %v to close, want %v at most; they took %v to pin", pins, took, limit, pinned)
		}
	}
}
