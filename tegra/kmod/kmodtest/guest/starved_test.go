// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// Attacks on the module's workers: one holder of the device must not keep them from others.

func init() { roles["late"] = discardLate }

// discardLate pins its pages of a private mapping of a file one by one, and discards them once the file's server no
// longer answers: a worker that reads in such a page waits for ever.
func discardLate() {
	d := &device{4}
	fd, err := unix.Open(fuseRoot+"/late", unix.O_RDWR|unix.O_CLOEXEC, 0)
	must(err)
	b, err := unix.Mmap(fd, 0, fuseLateSize, readWrite, unix.MAP_PRIVATE)
	must(err)
	must(unix.Madvise(b, unix.MADV_RANDOM))
	for at := 0; at < len(b); at += page {
		b[at] = 1
	}
	must(unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED))
	for at := 0; at < len(b); at += page {
		_, _, err := d.pin(b[at:at+page], bothWays)
		must(err)
	}
	_, err = unix.Pwrite(fd, []byte{1}, 0) // the server answers this, and no further reads
	must(err)
	must(unix.Madvise(b, unix.MADV_DONTNEED))
	fmt.Println("discarded")
	time.Sleep(time.Hour)
}

// TestStarvedChecks makes more pins than the module has workers wait for a file's server that does not answer.
func TestStarvedChecks(t *testing.T) {
	s := newScene(t)
	server := fuse(t)
	m := newMemory(t, pinPages*page)
	c := startChild(t, "late", "", file(t, m.fd), file(t, s.fd))
	if line := c.line(t); line != "discarded" {
		t.Fatal(line)
	}
	time.Sleep(2 * time.Second) // the checks of those pins are in progress
	s.besideStarved(t, m)
	within(t, "the end of the process", func() error { c.kill(t); return nil })
	_ = server.Process.Kill()
	s.drained(t)
	s.usable(t)
}

// drained waits until nothing is pinned through the device. The pins of a process that has ended are revoked, and fence
// the function, when the module's workers have let go of its address space, too.
func (s *scene) drained(t *testing.T) {
	t.Helper()
	within(t, "the end of the pins of a process that has ended", func() error {
		for s.info(t).PinnedBytes > 0 {
			time.Sleep(time.Millisecond)
		}
		return nil
	})
}

// besideStarved does what must work while the workers are busy for others: a revocation, PIN, PUT and close.
func (s *scene) besideStarved(t *testing.T, m *memory) {
	t.Helper()
	p := s.persist(t, m.bytes)
	within(t, "the revocation of another pin", func() error {
		call(t, "munmap", unix.SYS_MUNMAP, uintptr(address(m.bytes)), pinPages*page)
		for s.query(t, p.Handle).State == uapi.PinLive {
			time.Sleep(time.Millisecond)
		}
		return nil
	})
	within(t, "PUT of it", func() error { return uapi.DoPut(s.fd, p.Handle) })
	other := open(t)
	other.persist(t, anonymous(t, page))
	within(t, "close", func() error { other.close(); return nil })
}

// persist pins memory while other processes' revocations repeatedly fence the function.
func (d *device) persist(t *testing.T, b []byte) uapi.Pin {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		p, _, err := d.live(t).pin(b, bothWays)
		if err == nil {
			return p
		}
		if !errors.Is(err, unix.ESTALE) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// TestPinAgainstDiscard pins memory whose first page other threads discard. EINTR would be wrong without a signal: its
// receiver would retry for ever, or give up without a reason.
func TestPinAgainstDiscard(t *testing.T) {
	if os.Getenv("GODEBUG") != "asyncpreemptoff=1" { // Go's scheduler sends signals
		t.Setenv("GODEBUG", "asyncpreemptoff=1")
	}
	asNobody(t, func(t *testing.T, d *device) {
		const pages, pins = 64, 300
		b := anonymous(t, pages*page)
		var over atomic.Bool
		defer over.Store(true)
		for range 3 {
			go func() {
				for runtime.LockOSThread(); !over.Load(); {
					_ = unix.Madvise(b[:page], unix.MADV_DONTNEED)
				}
			}()
		}
		errnos := map[unix.Errno]int{}
		for range pins {
			p := uapi.Pin{VA: address(b), Size: pages * page, Flags: bothWays}
			p.Argsz = uint32(unsafe.Sizeof(p))
			_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(d.live(t).fd), uapi.CallPin, uintptr(unsafe.Pointer(&p)))
			if errno == 0 {
				d.put(t, p.Handle)
			}
			errnos[errno]++
		}
		t.Log(errnos)
		if errnos[unix.EINTR] > 0 {
			t.Errorf("PIN without a signal: EINTR %d times of %d", errnos[unix.EINTR], pins)
		}
	})
}
