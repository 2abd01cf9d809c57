// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// TestSecondEduPostponed changes a mapping continuously. The pin must end nevertheless.
func TestSecondEduPostponed(t *testing.T) {
	s := newScene(t)
	b := anonymous(t, page)
	var longest time.Duration
	late := 0 // a suspended machine is late once
	for range times {
		p, _ := s.mustPin(t, b)
		begin := time.Now()
		for n := 0; time.Since(begin) < time.Second && (n%100 != 0 || s.query(t, p.Handle).State == uapi.PinLive); n++ {
			call(t, "madvise", unix.SYS_MADVISE, uintptr(address(b)), page, unix.MADV_DONTNEED)
			b[0] = byte(n)
		}
		took := time.Since(begin)
		if longest = max(longest, took); took > 500*time.Millisecond {
			late++
		}
		s.revoked.wait(t)
		s.live(t)
		s.put(t, p.Handle)
	}
	t.Logf("the longest time that a pin was live after its page had gone: %v", longest)
	if late > times/2 {
		t.Errorf("changes of a mapping put off the end of its pin")
	}
}

// TestSecondNotifiers changes the first pages of pins from several threads. The provider's notifier must not be called
// for a pin that another thread is removing, about which the kernel warns.
func TestSecondNotifiers(t *testing.T) {
	asNobody(t, func(t *testing.T, d *device) {
		const pages = 16
		fd := memfd(t, pages*page, 0)
		b, errno := tryMapping(fd, 0, pages*page, readWrite, unix.MAP_SHARED)
		if errno != 0 {
			t.Fatal(errno)
		}
		defer unmap(t, b, 0)
		pins := 0
		for end := time.Now().Add(15 * time.Second); time.Now().Before(end); {
			d.live(t)
			var handles []uint32
			for at := page; at < len(b); at += page {
				if p, _, err := d.pin(b[at:at+page], bothWays); err == nil {
					handles = append(handles, p.Handle)
				}
			}
			pins += len(handles)
			var wg sync.WaitGroup
			for i := range 3 {
				wg.Go(func() {
					if i == 0 {
						_ = unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(len(b)))
						return
					}
					call(t, "madvise", unix.SYS_MADVISE, uintptr(address(b)), uintptr(len(b)), unix.MADV_DONTNEED)
				})
			}
			wg.Wait()
			for _, h := range handles {
				_ = uapi.DoPut(d.fd, h)
			}
		}
		t.Logf("%d pins", pins)
	})
}

// forkedSleep forks a child that waits for a signal.
//
//go:norace
//go:nosplit
func forkedSleep() (pid uintptr, errno syscall.Errno) {
	pid, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if pid != 0 || errno != 0 {
		return pid, errno
	}
	for {
		_, _, _ = syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}

// TestSecondEduFork pins private memory whose first page is not inherited by a child. What the function then writes to
// the rest must not show in the child.
func TestSecondEduFork(t *testing.T) {
	s := newScene(t)
	b := anonymous(t, 2*page)
	for i := range b {
		b[i] = 0x5a
	}
	p, iova := s.mustPin(t, b)
	call(t, "madvise", unix.SYS_MADVISE, uintptr(address(b))-page, 2*page, unix.MADV_DONTFORK)
	pid, errno := forkedSleep()
	if errno != 0 {
		t.Fatal(errno)
	}
	defer func() {
		_ = unix.Kill(int(pid), unix.SIGKILL)
		_, _ = unix.Wait4(int(pid), nil, 0, nil)
	}()
	state := s.query(t, p.Handle).State
	s.edu.start(fromDevice, iova+page)
	s.edu.finish(t)
	its := make([]byte, page)
	_, err := unix.ProcessVMReadv(int(pid), []unix.Iovec{{Base: &its[0], Len: page}},
		[]unix.RemoteIovec{{Base: uintptr(address(b)) + page, Len: page}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	changed := 0
	for _, v := range its {
		if v != 0x5a {
			changed++
		}
	}
	if changed > 0 {
		t.Errorf("the pin's state after the fork is %d; %d bytes of the child's private memory have changed", state, changed)
	}
	s.live(t)
	s.put(t, p.Handle)
}

// TestSecondEduStorm pins, puts, remaps and resumes in several threads, while the function is removed and added again.
func TestSecondEduStorm(t *testing.T) {
	noLeak(t)
	for range 5 {
		pinStorm(t)
	}
}

// storm has the shared state of the threads of TestSecondEduStorm.
type storm struct {
	*device
	fd      int
	b       []byte
	change  sync.Mutex // of the mapping: two concurrent changes cause a warning with nv-p2p
	handles [16]atomic.Uint32
	did     [5]atomic.Int64
}

// act makes one of the calls.
func (s *storm) act(op int) error {
	at := rand.IntN(len(s.b)/page) * page
	handle := &s.handles[rand.IntN(len(s.handles))]
	switch op {
	case 0:
		p, _, err := s.pin(s.b[at:at+page], bothWays)
		if err == nil {
			_ = uapi.DoPut(s.device.fd, handle.Swap(p.Handle))
		}
		return err
	case 1:
		return uapi.DoPut(s.device.fd, handle.Load())
	case 2:
		info, err := uapi.GetInfo(s.device.fd)
		if err == nil {
			_, err = uapi.DoControl(s.device.fd, uapi.ControlResume, info.FenceGen)
		}
		return err
	}
	s.change.Lock()
	defer s.change.Unlock()
	if op == 3 {
		_, _, errno := unix.Syscall6(unix.SYS_MMAP, uintptr(address(s.b))+uintptr(at), page, readWrite,
			unix.MAP_SHARED|unix.MAP_FIXED, uintptr(s.fd), uintptr(at))
		return errnoOf(errno)
	}
	return unix.Fallocate(s.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(at), page)
}

func pinStorm(t *testing.T) {
	const pages = 8
	s := &storm{device: open(t), fd: memfd(t, pages*page, 0)}
	var errno unix.Errno
	if s.b, errno = tryMapping(s.fd, 0, pages*page, readWrite, unix.MAP_SHARED); errno != 0 {
		t.Fatal(errno)
	}
	odds := []int{0, 0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 2, 3, 4}
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for !stop.Load() {
				if op := odds[rand.IntN(len(odds))]; s.act(op) == nil {
					s.did[op].Add(1)
				}
			}
		})
	}
	time.Sleep(2 * time.Second)
	write(t, "/sys/bus/pci/drivers/tegra_p2p/unbind", function)
	time.Sleep(50 * time.Millisecond)
	stop.Store(true)
	wg.Wait()
	s.close()
	unmap(t, s.b, 0)
	write(t, "/sys/bus/pci/drivers_probe", function)
	var said []int64
	for i := range s.did {
		said = append(said, s.did[i].Load())
	}
	t.Log("PIN, PUT, RESUME, mmap, punch:", said)
}
