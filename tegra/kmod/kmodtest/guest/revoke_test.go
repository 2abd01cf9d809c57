// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

const pinPages = 4

// times is the number of repetitions of each revocation.
var times = func() int {
	if n, err := strconv.Atoi(os.Getenv("GUEST_TIMES")); err == nil && n > 0 {
		return n
	}
	return 20
}()

// scene is a device with an engine, for revocations during a DMA. A DMA in progress when the memory is revoked moves its
// data 100 ms later. They must not reach the memory.
type scene struct {
	*device
	edu     *edu
	revoked *event
	nv      bool
}

func newScene(t *testing.T) *scene {
	noLeak(t)
	return openScene(t)
}

// openScene waits for the engine, which a previous holder may have left running, and lifts the fence.
func openScene(t *testing.T) *scene {
	d := open(t)
	e := d.edu(t)
	d.live(t)
	return &scene{d, e, d.event(t, uapi.EventRevoke), nvp2p(t, d)}
}

// inFlight pins memory and makes the device write to it.
func (s *scene) inFlight(t *testing.T, b []byte) uapi.Pin {
	t.Helper()
	p, iova := s.mustPin(t, b)
	s.edu.start(fromDevice, iova)
	return p
}

// repeat repeats an act that revokes memory until a DMA was in progress often enough at that time. On a busy or slow
// machine once suffices. The act reports whether one was.
func repeat(t *testing.T, act func() (inFlight bool)) {
	t.Helper()
	n, most := 0, 5*times
	late := watchLateness(t)
	if slow {
		most = times
	}
	for range most {
		if act() {
			n++
		}
		if n == times {
			return
		}
	}
	if t.Logf("a DMA was in flight %d times only: the machine is busy", n); n > 0 || slow {
		return
	}
	if l := time.Duration(late.Load()); l >= eduTime/4 {
		t.Skipf("NEEDS a machine that is less busy: a DMA was never in flight, and timers were up to %v late", l)
	}
	t.Error("a DMA was never in flight")
}

// watchLateness measures the maximum lateness of timers until the test ends, in nanoseconds.
func watchLateness(t *testing.T) *atomic.Int64 {
	var late atomic.Int64
	go func() {
		const tick = 5 * time.Millisecond
		for t.Context().Err() == nil {
			began := time.Now()
			time.Sleep(tick)
			late.Store(max(late.Load(), int64(time.Since(began)-tick)))
		}
	}()
	return &late
}

// over checks that a pin is revoked and has fenced the device, and lifts the fence. It reports whether a DMA was still in
// flight when the revocation was seen.
func (s *scene) over(t *testing.T, p uapi.Pin, reason uint32) (inFlight bool) {
	t.Helper()
	s.revoked.wait(t)
	inFlight = s.edu.flying()
	q, i := s.query(t, p.Handle), s.info(t)
	if q.State != uapi.PinRevoked || q.Reason != reason || q.NSegs != 0 || i.State != uapi.StateFenced || q.FenceGen != i.FenceGen {
		t.Fatalf("%+v, want reason %d, with %+v", q, reason, i)
	}
	_, _, err := s.pin(anonymous(t, page), uapi.PinToDevice)
	wantErrno(t, "PIN while fenced", err, unix.ESTALE)
	wantErrno(t, "ALLOC while fenced", uapi.DoAlloc(s.fd, &uapi.Alloc{Size: page}), unix.ESTALE)
	s.edu.finish(t)
	gen, err := uapi.DoControl(s.fd, uapi.ControlResume, i.FenceGen-1)
	wantErrno(t, "RESUME of an older fence", err, unix.EAGAIN)
	if gen != i.FenceGen {
		t.Errorf("RESUME says generation %d, want %d", gen, i.FenceGen)
	}
	if _, err := uapi.DoControl(s.fd, uapi.ControlResume, i.FenceGen); err != nil {
		t.Fatal(err)
	}
	s.put(t, p.Handle)
	return inFlight
}

// usable checks that the device works as before.
func (s *scene) usable(t *testing.T) {
	t.Helper()
	s.live(t)
	b := anonymous(t, 2*page)
	p, iova := s.mustPin(t, b)
	s.edu.roundTrip(t, b, iova)
	s.put(t, p.Handle)
}

func call(t testing.TB, name string, trap uintptr, args ...uintptr) uintptr {
	t.Helper()
	var a [6]uintptr
	copy(a[:], args)
	r, _, errno := unix.Syscall6(trap, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		t.Fatalf("%s: %v", name, errno)
	}
	return r
}

// TestRevocation revokes memory in all ways that a process has.
func TestRevocation(t *testing.T) {
	start := func(m *memory) uintptr { return uintptr(address(m.bytes)) }
	const size = pinPages * page
	stays := map[string]bool{"MADV_DONTNEED": true, "clear_refs": true} // the next touch finds the same pages
	for name, take := range map[string]func(t *testing.T, m *memory){
		"munmap": func(t *testing.T, m *memory) { call(t, "munmap", unix.SYS_MUNMAP, start(m), size) },
		"partial munmap": func(t *testing.T, m *memory) {
			call(t, "munmap", unix.SYS_MUNMAP, start(m)-page, 2*page)
		},
		"mremap": func(t *testing.T, m *memory) {
			moved := call(t, "mremap", unix.SYS_MREMAP, start(m), size, 2*size, unix.MREMAP_MAYMOVE)
			if moved == start(m) {
				moved = call(t, "mremap", unix.SYS_MREMAP, start(m), size, size, unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED, moved+1<<30)
			}
			call(t, "munmap", unix.SYS_MUNMAP, moved, 2*size)
		},
		"mprotect": func(t *testing.T, m *memory) { call(t, "mprotect", unix.SYS_MPROTECT, start(m), size, unix.PROT_READ) },
		"MADV_DONTNEED": func(t *testing.T, m *memory) {
			call(t, "madvise", unix.SYS_MADVISE, start(m), size, unix.MADV_DONTNEED)
		},
		"clear_refs": func(t *testing.T, m *memory) {
			if err := os.WriteFile("/proc/self/clear_refs", []byte("4"), 0); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			if stays[name] && !s.nv {
				s.unmoved(t, take)
				return
			}
			repeat(t, func() bool {
				m := newMemory(t, size)
				p := s.inFlight(t, m.bytes)
				take(t, m)
				flying := s.edu.flying()
				if seen := s.over(t, p, uapi.ReasonInvalidate); name == "mprotect" && !s.nv { // a worker has revoked the pin
					flying = seen
				}
				m.check(t, flying)
				m.free(t)
				return flying
			})
			s.usable(t)
		})
	}
}

// unmoved checks that a pin survives changes of a mapping that keep its pages, and still refers to the visible memory.
func (s *scene) unmoved(t *testing.T, act func(t *testing.T, m *memory)) {
	t.Helper()
	for range times {
		m := newMemory(t, pinPages*page)
		p, iova := s.mustPin(t, m.bytes)
		act(t, m)
		time.Sleep(recheck)
		if q, i := s.query(t, p.Handle), s.info(t); q.State != uapi.PinLive || i.State != uapi.StateLive {
			t.Fatalf("%+v, with %+v", q, i)
		}
		s.edu.roundTrip(t, m.bytes, iova)
		s.put(t, p.Handle)
		m.free(t)
	}
	s.usable(t)
}

// recheck is the time within which the module checks the pages again.
const recheck = 50 * time.Millisecond

// TestDiscard discards the pages of private memory and keeps its mapping: the next touch finds other pages.
func TestDiscard(t *testing.T) {
	s := newScene(t)
	repeat(t, func() bool {
		b := anonymous(t, pinPages*page)
		b[0] = 1
		p := s.inFlight(t, b)
		call(t, "madvise", unix.SYS_MADVISE, uintptr(address(b)), pinPages*page, unix.MADV_DONTNEED)
		flying := s.edu.flying()
		s.over(t, p, uapi.ReasonInvalidate)
		if b[0] != 0 {
			t.Errorf("new memory begins with %#x", b[0])
		}
		return flying
	})
	s.usable(t)
}

// TestRevocationByFork forks, which temporarily makes private memory shared. The kernel gives the child a copy of
// long-term pinned pages, so such a pin stays. With a provider that pins differently the pin is revoked, because the
// parent's next write would replace the page.
func TestRevocationByFork(t *testing.T) {
	s := newScene(t)
	if !s.nv {
		s.unmoved(t, func(t *testing.T, _ *memory) { fork(t) })
		b := anonymous(t, 2*page)
		p, iova := s.mustPin(t, b)
		fork(t)
		b[0] = 7
		time.Sleep(recheck)
		if q := s.query(t, p.Handle); q.State != uapi.PinLive {
			t.Errorf("%+v", q)
		}
		s.edu.roundTrip(t, b, iova)
		s.put(t, p.Handle)
		return
	}
	repeat(t, func() bool {
		b := anonymous(t, pinPages*page)
		for i := range b {
			b[i] = pattern(i)
		}
		p := s.inFlight(t, b)
		fork(t)
		flying := s.edu.flying()
		s.over(t, p, uapi.ReasonInvalidate)
		(&memory{pages: b}).check(t, flying)
		return flying
	})
	s.usable(t)
}

// fork creates a child that ends at once.
func fork(t *testing.T) {
	t.Helper()
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if pid == 0 && errno == 0 {
		for {
			syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	if errno != 0 {
		t.Fatal(errno)
	}
	if _, err := unix.Wait4(int(pid), nil, 0, nil); err != nil {
		t.Fatal(err)
	}
}

// TestTailMunmap unmaps all pages of a pin except the first, beyond which nv-p2p's provider does not look.
func TestTailMunmap(t *testing.T) {
	s := newScene(t)
	m := newMemory(t, pinPages*page)
	p, iova := s.mustPin(t, m.bytes)
	call(t, "munmap", unix.SYS_MUNMAP, uintptr(address(m.bytes))+page, (pinPages-1)*page)
	s.edu.start(fromDevice, iova)
	s.over(t, p, uapi.ReasonInvalidate)
	m.check(t, true)
	s.usable(t)
}

// TestClose checks that a close with remaining memory revokes all of it, and that the next process that opens the device
// finds the fence.
func TestClose(t *testing.T) {
	s := newScene(t)
	i := 0
	repeat(t, func() bool {
		d := open(t)
		m := newMemory(t, pinPages*page)
		_, iova := d.mustPin(t, m.bytes)
		if i++; i%2 == 0 {
			a := uapi.Alloc{Size: page}
			if err := uapi.DoAlloc(d.fd, &a); err != nil {
				t.Fatal(err)
			}
		}
		s.edu.start(fromDevice, iova)
		d.close()
		flying := s.edu.flying()
		if i := s.info(t); i.State != uapi.StateFenced {
			t.Fatalf("%+v", i)
		}
		s.edu.finish(t)
		m.check(t, flying)
		m.free(t)
		s.live(t)
		return flying
	})
	s.usable(t)
}

// TestPutAgainstMunmap races PUT and munmap in 200 ways. One of them ends the pin, and both return.
func TestPutAgainstMunmap(t *testing.T) {
	s := newScene(t)
	for i := range 200 {
		b := mapPages(t, -1, 0, page, unix.MAP_PRIVATE|unix.MAP_ANON)
		p, _ := s.mustPin(t, b)
		go_ := make(chan struct{})
		var both sync.WaitGroup
		var err error
		both.Add(2)
		go func() { defer both.Done(); <-go_; err = uapi.DoPut(s.fd, p.Handle) }()
		go func() { defer both.Done(); <-go_; unmap(t, b, page) }()
		close(go_)
		both.Wait()
		if err != nil {
			t.Fatalf("PUT %d: %v", i, err)
		}
		s.live(t)
	}
	s.usable(t)
}

// TestHalt checks that the halt list runs when a pin is revoked, once per fence, and that a poll that never succeeds does
// not delay it.
func TestHalt(t *testing.T) {
	s := newScene(t)
	b := anonymous(t, page)
	for i := range times {
		b[0] = 1
		v := uint32(0x1000 + i)
		err := uapi.SetHalt(s.fd, []uapi.HaltOp{
			{Op: uapi.HaltPoll32, Offset: eduID, Value: 0x12, Mask: 0xff},
			{Op: uapi.HaltW32, Offset: eduLiveness, Value: uint64(v)},
			{Op: uapi.HaltPoll32, Offset: eduLiveness, Value: uint64(^v), Mask: 0xffffffff},
		})
		if err != nil {
			t.Fatal(err)
		}
		s.mustPin(t, b)
		call(t, "madvise", unix.SYS_MADVISE, uintptr(address(b)), page, unix.MADV_DONTNEED)
		s.revoked.wait(t)
		if got := s.edu.read(eduLiveness); got != ^v {
			t.Fatalf("liveness register %#x, want %#x", got, ^v)
		}
		s.live(t)
	}
	if err := uapi.SetHalt(s.fd, nil); err != nil {
		t.Fatal(err)
	}
	b[0] = 1
	s.mustPin(t, b)
	s.edu.write(eduLiveness, 7)
	call(t, "madvise", unix.SYS_MADVISE, uintptr(address(b)), page, unix.MADV_DONTNEED)
	s.revoked.wait(t)
	if got := s.edu.read(eduLiveness); got != ^uint32(7) {
		t.Errorf("a list that was taken away wrote %#x", ^got)
	}
	s.usable(t)
	for h := range uint32(times + 1) {
		_ = uapi.DoPut(s.fd, h+1)
	}
}
