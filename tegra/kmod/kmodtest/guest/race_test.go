// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// raceTime is the duration of a race.
const raceTime = 8 * time.Second

// onCPU binds a goroutine to a processor.
func onCPU(n int) error {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(n)
	return unix.SchedSetaffinity(0, &set)
}

// freshPages returns new pages in one mapping.
func freshPages(n int) (uintptr, unix.Errno) {
	p, _, errno := unix.Syscall6(unix.SYS_MMAP, 0, uintptr(n*page), readWrite, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE, ^uintptr(0), 0)
	return p, errno
}

// TestPutAgainstQuery races PUT with QUERY of the same pin on another processor. QUERY must report the unchanged pin or
// none.
func TestPutAgainstQuery(t *testing.T) {
	noLeak(t)
	d, b := open(t).live(t), anonymous(t, page)
	var handle, there, gone atomic.Uint32
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			q := uapi.Query{Handle: handle.Load()}
			switch err := uapi.DoQuery(d.fd, &q, nil); {
			case errors.Is(err, unix.ENOENT):
				gone.Add(1)
			case err != nil || q.State != uapi.PinLive || q.NSegs != 1:
				done <- fmt.Errorf("%+v, %v", q, err)
				return
			default:
				there.Add(1)
			}
		}
	}()
	for end := time.Now().Add(raceTime / 4); time.Now().Before(end); {
		p, _ := d.mustPin(t, b)
		handle.Store(p.Handle)
		d.put(t, p.Handle)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	t.Logf("%d queries of a pin, %d of none", there.Load(), gone.Load())
}

// TestPinAgainstMunmap races PIN with munmap of the same memory on another processor, in short-lived address spaces,
// where a surplus drop of a reference shows. With nv-p2p either call waits for grace periods, so several processes race
// at once.
func TestPinAgainstMunmap(t *testing.T) {
	noLeak(t)
	device := file(t, open(t).live(t).fd)
	defer device.Close()
	var spaces, done, lost atomic.Int64
	var all sync.WaitGroup
	end := time.Now().Add(raceTime)
	for range 6 {
		all.Add(1)
		go func() {
			defer all.Done()
			for time.Now().Before(end) && !t.Failed() {
				a, b := raceOnce(t, device)
				spaces.Add(1)
				done.Add(a)
				lost.Add(b)
			}
		}()
	}
	all.Wait()
	t.Logf("%d address spaces: %d pins, %d lost to munmap", spaces.Load(), done.Load(), lost.Load())
	if !slow && (done.Load() == 0 || lost.Load() == 0) {
		t.Errorf("%d pins, %d lost to munmap: the two did not meet", done.Load(), lost.Load())
	}
}

// raceOnce runs a process of user nobody. It returns the number of its pins, and how often munmap was faster.
func raceOnce(t *testing.T, device *os.File) (done, lost int64) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, "/guest.test")
	c.Env = []string{"GUEST_ROLE=race"}
	c.ExtraFiles = []*os.File{os.Stdin, device}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := c.CombinedOutput()
	if _, scan := fmt.Sscan(string(out), &done, &lost); err != nil || scan != nil {
		t.Errorf("%v: %s", err, out)
	}
	return done, lost
}

const racePages = 5 // one page before the pin, for nv-p2p

// raceChild pins memory in one thread that another unmaps. A channel wakes both at the same time.
func raceChild() {
	debug.SetGCPercent(-1)
	d, start, over := &device{4}, make(chan [2]int64), make(chan struct{})
	go func() {
		must(onCPU(1))
		for at := range start {
			spin(at[1])
			_, _, _ = unix.Syscall(unix.SYS_MUNMAP, uintptr(at[0]), racePages*page, 0)
			over <- struct{}{}
		}
	}()
	must(onCPU(0))
	done, lost, delay := 0, 0, int64(0) // delay of munmap, in turns of a loop; a negative value delays PIN
	for range 40 {
		at, errno := freshPages(racePages)
		must(errnoOf(errno))
		turns := delay + rand.Int64N(20_000) - 10_000
		resume(d.fd)
		start <- [2]int64{int64(at), turns}
		spin(-turns)
		p := uapi.Pin{Flags: bothWays, VA: uint64(at) + page, Size: (racePages - 1) * page}
		switch err := uapi.DoPin(d.fd, &p, nil); {
		case err == nil:
			done++
			delay -= 4000
			must(uapi.DoPut(d.fd, p.Handle))
		case strings.Contains("EFAULT EAGAIN ESTALE EBUSY", unix.ErrnoName(errnoIn(err))):
			lost++
			delay += 4000
		default:
			must(err)
		}
		<-over
	}
	fmt.Println(done, lost)
}

// TestPinAgainstChange pins memory of which another thread replaces a page meanwhile. The pin is revoked, unless it has the
// new page: then the device reads what the program writes to that.
func TestPinAgainstChange(t *testing.T) {
	s := newScene(t)
	if s.nv {
		return // fails, or is revoked, whenever anything happens
	}
	const size, rounds = 2 << 20, 16
	to := anonymous(t, page)
	back, copied := s.mustPin(t, to)
	file := memfd(t, size, 0)
	for name, c := range map[string]struct {
		memory []byte
		change func(b []byte) error
	}{
		"MADV_DONTNEED": {anonymous(t, size), func(b []byte) error { return unix.Madvise(b[size-page:], unix.MADV_DONTNEED) }},
		"hole": {mapping(t, file, size, readWrite, unix.MAP_SHARED), func([]byte) error {
			return unix.Fallocate(file, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, size-page, page)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := c.memory
			began := time.Now()
			p, _ := s.mustPin(t, b)
			usual := time.Since(began)
			s.put(t, p.Handle)
			counts := map[string]int{}
			for round := range rounds {
				counts[s.pinAgainst(t, b, round, time.Duration(rand.Int64N(int64(usual)+1)), c.change, copied, to)]++
			}
			t.Log(counts)
			if counts["failed"] == rounds {
				t.Error("no PIN succeeds")
			}
		})
	}
	s.put(t, back.Handle)
}

// pinAgainst pins b while another thread replaces its last page, after a delay, and returns what came of it: "failed",
// "revoked" or "right". Afterwards the program writes a pattern from first on to that page, and the device copies it to the
// memory to, which is pinned at copied.
func (s *scene) pinAgainst(t *testing.T, b []byte, first int, delay time.Duration, change func([]byte) error, copied uint64, to []byte) string {
	t.Helper()
	last, changed := b[len(b)-page:], make(chan error, 1)
	last[0] = 0
	s.live(t)
	go func() {
		for begin := time.Now(); time.Since(begin) < delay; {
		}
		changed <- change(b)
	}()
	p, segs, err := s.pin(b, bothWays)
	if err := <-changed; err != nil {
		t.Fatal(err)
	}
	if err != nil {
		wantErrno(t, "PIN", err, unix.EAGAIN)
		return "failed"
	}
	for i := range eduTransfer {
		last[i] = pattern(first + i)
	}
	result := "revoked" // before PIN returned
	if len(segs) > 0 {
		result = s.judge(t, p.Handle, segs[0].IOVA+uint64(len(b)-page), copied, func() bool { return bytes.Equal(to[:eduTransfer], last[:eduTransfer]) })
	}
	s.live(t).put(t, p.Handle)
	return result
}

// judge lets the device copy memory of a pin until the copy is right or the pin is revoked, and returns which it was.
func (s *scene) judge(t *testing.T, handle uint32, from, to uint64, right func() bool) string {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		if s.query(t, handle).State == uapi.PinRevoked {
			return "revoked"
		}
		for _, dma := range []struct {
			command uint32
			iova    uint64
		}{{toDevice, from}, {fromDevice, to}} {
			s.edu.start(dma.command, dma.iova)
			s.edu.idle()
		}
		if right() {
			return "right"
		}
		if time.Now().After(end) {
			t.Fatal("the device reads another page than the program, and the pin is live")
		}
	}
}

// spin executes a number of turns of a loop.
func spin(turns int64) {
	var turn atomic.Int64
	for turn.Load() < turns {
		turn.Add(1)
	}
}

func errnoIn(err error) unix.Errno {
	if e, ok := errors.AsType[*uapi.Error](err); ok {
		return e.Errno
	}
	return unix.EINVAL
}

// resume lifts a fence unless another process does.
func resume(fd int) {
	if i, err := uapi.GetInfo(fd); err == nil && i.State == uapi.StateFenced {
		_, _ = uapi.DoControl(fd, uapi.ControlResume, i.FenceGen)
	}
}

// TestSRCU revokes nv-p2p's pins on one processor, which is then busy, while another processor does the same. If SRCU has
// a queue of callbacks for each processor, as before Linux 5.19 and with srcutree.convert_to_big=1, the first processor's
// callback comes long after the notifier's grace period, and what it uses must still exist.
func TestSRCU(t *testing.T) {
	asNobody(t, func(t *testing.T, d *device) {
		if !nvp2p(t, d) {
			t.Fatal("the notifiers of pin_user_pages have no callback")
		}
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
		var stop atomic.Bool
		var taken [3]int
		var all sync.WaitGroup
		all.Add(4)
		go func() { defer all.Done(); hog(&stop) }()
		for i, cpu := range []int{0, 1, 1} {
			go func() {
				defer all.Done()
				must(onCPU(cpu))
				for !stop.Load() {
					taken[i] += takeAway(d.fd)
				}
			}()
		}
		time.Sleep(raceTime)
		stop.Store(true)
		all.Wait()
		t.Logf("%d pins taken away", taken)
		if taken[0] == 0 || taken[1] == 0 {
			t.Error("no pins were taken away")
		}
	})
}

// hog keeps processor 0 busy, with pauses.
func hog(stop *atomic.Bool) {
	must(onCPU(0))
	for !stop.Load() {
		for began := time.Now(); time.Since(began) < 120*time.Millisecond; {
		}
		time.Sleep(time.Duration(5+rand.IntN(20)) * time.Millisecond)
	}
}

// takeAway pins memory and unmaps it. It returns the number of pins that this ended.
func takeAway(fd int) int {
	resume(fd)
	at, errno := freshPages(2)
	must(errnoOf(errno))
	p := uapi.Pin{Flags: bothWays, VA: uint64(at) + page, Size: page}
	err := uapi.DoPin(fd, &p, nil)
	_, _, _ = unix.Syscall(unix.SYS_MUNMAP, at, 2*page, 0)
	if err != nil {
		return 0
	}
	_ = uapi.DoPut(fd, p.Handle)
	return 1
}
