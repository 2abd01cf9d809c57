// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// toDeviceAndBack makes the device read the start of pinned memory, and returns what it read.
func (s *scene) toDeviceAndBack(t *testing.T, iova uint64) []byte {
	t.Helper()
	to := anonymous(t, page)
	p, back := s.mustPin(t, to)
	s.edu.start(toDevice, iova)
	s.edu.finish(t)
	s.edu.start(fromDevice, back)
	s.edu.finish(t)
	s.put(t, p.Handle)
	return to[:eduTransfer]
}

// stays checks that a pin is live, and that the device reads the program's memory.
func (s *scene) stays(t *testing.T, p uapi.Pin, iova uint64, b []byte) {
	t.Helper()
	if q, i := s.query(t, p.Handle), s.info(t); q.State != uapi.PinLive || i.State != uapi.StateLive {
		t.Fatalf("revoked: %+v, %+v", q, i)
	}
	if got := s.toDeviceAndBack(t, iova); !bytes.Equal(got, b[:eduTransfer]) {
		t.Errorf("the device reads % x, the program % x", got[:8], b[:8])
	}
}

func (s *scene) pinToDevice(t *testing.T, b []byte) (uapi.Pin, uint64) {
	t.Helper()
	p, segs, err := s.live(t).pin(b, uapi.PinToDevice)
	if err != nil {
		t.Fatal(err)
	}
	return p, segs[0].IOVA
}

// TestUntouched pins memory for reading by the device that the program has not written before, and then writes to it.
func TestUntouched(t *testing.T) {
	asRoot(t, ownedFile, string(bytes.Repeat([]byte(ownedText), kindSize/len(ownedText)+1)))
	asRoot(t, "/sys/kernel/mm/ksm/pages_to_scan", "2000")
	letIn(t, ksmRun)
	const private = unix.MAP_PRIVATE | unix.MAP_ANON
	asNobody(t, func(t *testing.T, d *device) {
		s := &scene{d, d.edu(t), d.event(t, uapi.EventRevoke), nvp2p(t, d)}
		for name, b := range map[string]func(t *testing.T) []byte{
			"never touched": func(t *testing.T) []byte { return mapping(t, -1, kindSize, readWrite, private) },
			"read before": func(t *testing.T) []byte {
				b := mapping(t, -1, kindSize, readWrite, private)
				for i := range b {
					if b[i] != 0 {
						t.Fatal("new memory is not zero")
					}
				}
				return b
			},
			"private file": func(t *testing.T) []byte {
				return mapping(t, owned(t), kindSize, readWrite, unix.MAP_PRIVATE)
			},
			"merged": merged,
		} {
			t.Run(name, func(t *testing.T) {
				m := b(t)
				p, iova := s.pinToDevice(t, m)
				for i := range m {
					m[i] = pattern(i)
				}
				s.stays(t, p, iova, m)
				s.put(t, p.Handle)
			})
		}
	})
	asRoot(t, ksmRun, "2")
}

// quiet returns actions of the kernel or the program that leave pinned pages in place.
func quiet() map[string]func(t *testing.T, b []byte) {
	tell := func(name, text string) func(*testing.T, []byte) {
		return func(t *testing.T, _ []byte) {
			if err := os.WriteFile(name, []byte(text), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	return map[string]func(t *testing.T, b []byte){
		"nothing": func(*testing.T, []byte) {},
		"compaction": func(t *testing.T, b []byte) {
			holes(t)
			tell("/proc/sys/vm/compact_memory", "1")(t, b)
		},
		"khugepaged": func(_ *testing.T, b []byte) {
			const collapse = 25 // MADV_COLLAPSE, since Linux 6.1
			_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
			_ = unix.Madvise(b, collapse)
		},
		"MADV_PAGEOUT": func(_ *testing.T, b []byte) { _ = unix.Madvise(b, unix.MADV_PAGEOUT) },
		"drop_caches":  tell("/proc/sys/vm/drop_caches", "3"),
		"clear_refs":   tell("/proc/self/clear_refs", "4"),
		"clear_refs 1": tell("/proc/self/clear_refs", "1"),
	}
}

// TestQuiet checks that pins of pin_user_pages survive everything that leaves their pages in place. Those of nv-p2p do
// not: its provider is notified of every change and releases the pin.
func TestQuiet(t *testing.T) {
	s := newScene(t)
	if s.nv {
		return
	}
	const size = 16 << 20
	acts := quiet()
	for name, memory := range map[string]func(t *testing.T) []byte{
		"anonymous": func(t *testing.T) []byte { return anonymous(t, size) },
		"memfd":     func(t *testing.T) []byte { return mapping(t, memfd(t, size, 0), size, readWrite, unix.MAP_SHARED) },
	} {
		for what, act := range acts {
			t.Run(name+", "+what, func(t *testing.T) { s.quiet(t, memory(t), act) })
		}
	}
	t.Run("anonymous, KSM", func(t *testing.T) { // scans no other memory
		s.quiet(t, anonymous(t, size), func(t *testing.T, b []byte) {
			if err := unix.Madvise(b, unix.MADV_MERGEABLE); err != nil {
				t.Fatal(err)
			}
			scanKSM(t)
		})
	})
	t.Run("memfd, MADV_DONTNEED", func(t *testing.T) {
		b := mapping(t, memfd(t, size, 0), size, readWrite, unix.MAP_SHARED)
		s.quiet(t, b, func(t *testing.T, b []byte) {
			if err := unix.Madvise(b, unix.MADV_DONTNEED); err != nil {
				t.Fatal(err)
			}
		})
	})
	s.usable(t)
}

// quiet checks that an act changes neither pins of both directions nor their content.
func (s *scene) quiet(t *testing.T, b []byte, act func(t *testing.T, b []byte)) {
	t.Helper()
	for at := 0; at < len(b); at += page {
		for i := range eduTransfer {
			b[at+i] = pattern(at + i)
		}
	}
	half := len(b) / 2
	reads, iova := s.pinToDevice(t, b[:half])
	writes, to := s.mustPin(t, b[half:])
	act(t, b)
	time.Sleep(100 * time.Millisecond)
	b[0]++
	s.stays(t, reads, iova, b)
	b[half] = 0x5a
	s.stays(t, writes, to, b[half:])
	s.put(t, reads.Handle)
	s.put(t, writes.Handle)
}

// TestRestless pins memory whose mapping the kernel touches all the time, without moving a page.
func TestRestless(t *testing.T) {
	s := newScene(t)
	if s.nv {
		return // gives memory back whenever its mapping is touched
	}
	const size = 8 << 20
	ctx, stop := context.WithCancel(t.Context())
	var touching sync.WaitGroup
	touching.Go(func() {
		for ctx.Err() == nil {
			if err := os.WriteFile("/proc/self/clear_refs", []byte("4"), 0); err != nil { // calls all notifiers
				t.Error(err)
				return
			}
		}
	})
	defer touching.Wait()
	defer stop()
	for i := range 20 {
		b := mapPages(t, -1, 0, size, unix.MAP_PRIVATE|unix.MAP_ANON)
		b[0] = byte(i)
		p, iova := s.mustPin(t, b)
		s.stays(t, p, iova, b)
		s.put(t, p.Handle)
		unmap(t, b, 0) // clear_refs takes longer for more memory
	}
}

// holes creates memory in which every other page is free, as work for compaction.
func holes(t *testing.T) {
	t.Helper()
	b := anonymous(t, 64<<20)
	if err := unix.Madvise(b, unix.MADV_NOHUGEPAGE); err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(b); at += 2 * page {
		if err := unix.Madvise(b[at:at+page], unix.MADV_DONTNEED); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSlowHole punches a hole in a large file whose last pages are pinned: the kernel unmaps them some ticks before it
// removes them.
func TestSlowHole(t *testing.T) {
	s := newScene(t)
	const size, all = pinPages * page, 128 << 20
	fd := memfd(t, all, 0)
	if err := unix.Fallocate(fd, 0, 0, all); err != nil {
		t.Fatal(err)
	}
	b, err := unix.Mmap(fd, all-size, size, readWrite, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := s.mustPin(t, b)
	if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, all); err != nil {
		t.Fatal(err)
	}
	s.revoked.wait(t)
	if q := s.query(t, p.Handle); q.State != uapi.PinRevoked || q.Reason != uapi.ReasonInvalidate {
		t.Errorf("%+v", q)
	}
	s.put(t, p.Handle)
	if err := unix.Munmap(b); err != nil {
		t.Error(err)
	}
	s.usable(t)
}

// TestTaken ends pins by every way of removing their memory.
func TestTaken(t *testing.T) {
	s := newScene(t)
	const size = pinPages * page
	ofMemfd := func(t *testing.T) []byte { return newMemory(t, size).bytes }
	ofNobody := func(t *testing.T) []byte { return anonymous(t, size) }
	for name, c := range map[string]struct {
		memory func(t *testing.T) []byte
		take   func(t *testing.T, b []byte)
	}{
		"MADV_DONTNEED of anonymous memory": {ofNobody, func(t *testing.T, b []byte) {
			call(t, "madvise", unix.SYS_MADVISE, uintptr(address(b)), size, unix.MADV_DONTNEED)
		}},
		"munmap of anonymous memory": {ofNobody, func(t *testing.T, b []byte) { unmap(t, b, 0) }},
		"munmap of a memfd":          {ofMemfd, func(t *testing.T, b []byte) { unmap(t, b, 0) }},
		"mprotect of a memfd": {ofMemfd, func(t *testing.T, b []byte) {
			call(t, "mprotect", unix.SYS_MPROTECT, uintptr(address(b)), size, unix.PROT_READ)
		}},
		"mprotect of anonymous memory": {ofNobody, func(t *testing.T, b []byte) {
			call(t, "mprotect", unix.SYS_MPROTECT, uintptr(address(b)), size, unix.PROT_NONE)
		}},
		"mremap of anonymous memory": {ofNobody, func(t *testing.T, b []byte) {
			to := mapping(t, -1, size, readWrite, unix.MAP_PRIVATE|unix.MAP_ANON)
			call(t, "mremap", unix.SYS_MREMAP, uintptr(address(b)), size, size, unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED, uintptr(address(to)))
		}},
		"mmap over a memfd": {ofMemfd, func(t *testing.T, b []byte) {
			call(t, "mmap", unix.SYS_MMAP, uintptr(address(b)), size, readWrite, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED, ^uintptr(0))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := c.memory(t)
			for i := range b {
				b[i] = 1
			}
			p, _ := s.live(t).mustPin(t, b)
			c.take(t, b)
			s.revoked.wait(t)
			if q, i := s.query(t, p.Handle), s.info(t); q.State != uapi.PinRevoked || q.Reason != uapi.ReasonInvalidate || i.State != uapi.StateFenced {
				t.Errorf("%+v, %+v", q, i)
			}
			s.live(t).put(t, p.Handle)
		})
	}
	s.usable(t)
}
