package guest

import (
	"context"
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

	"tegracast/tegra/uapi"
)

// raceTime is how long two things race.
const raceTime = 8 * time.Second

// onCPU keeps a goroutine on a processor.
func onCPU(n int) error {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(n)
	return unix.SchedSetaffinity(0, &set)
}

// freshPages are new pages of one mapping.
func freshPages(n int) (uintptr, unix.Errno) {
	p, _, errno := unix.Syscall6(unix.SYS_MMAP, 0, uintptr(n*page), readWrite, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE, ^uintptr(0), 0)
	return p, errno
}

// TestPinAgainstMunmap has PIN meet munmap of the same memory on another processor, in address spaces that end soon: a
// reference of one that is dropped once too often shows there.
func TestPinAgainstMunmap(t *testing.T) {
	noLeak(t)
	d := open(t).live(t)
	spaces, done, lost := 0, 0, 0
	for end := time.Now().Add(raceTime); time.Now().Before(end); spaces++ {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		c := exec.CommandContext(ctx, "/guest.test")
		c.Env = []string{"GUEST_ROLE=race"}
		c.ExtraFiles = []*os.File{os.Stdin, file(t, d.fd)}
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := c.CombinedOutput()
		c.ExtraFiles[1].Close()
		cancel()
		var a, b int
		if _, scan := fmt.Sscan(string(out), &a, &b); err != nil || scan != nil {
			t.Fatalf("%v: %s", err, out)
		}
		done, lost = done+a, lost+b
	}
	t.Logf("%d address spaces: %d pins, %d lost to munmap", spaces, done, lost)
	if !slow && (done == 0 || lost == 0) {
		t.Errorf("%d pins, %d lost to munmap: the two did not meet", done, lost)
	}
}

// racer is a process whose one thread pins what the other unmaps.
type racer struct {
	at    atomic.Uintptr // 0 ends it
	round atomic.Uint32
	done  atomic.Uint32
	delay atomic.Int64 // of munmap, in turns of a loop; below 0 it is PIN's
}

const racePages = 5 // one before the pin, for nv-p2p

func (r *racer) unmap() {
	must(onCPU(1))
	for seen := uint32(0); ; {
		for r.round.Load() == seen { // on a processor of its own
		}
		seen = r.round.Load()
		at := r.at.Load()
		if at == 0 {
			return
		}
		r.wait(r.delay.Load())
		_, _, _ = unix.Syscall(unix.SYS_MUNMAP, at, racePages*page, 0)
		r.done.Store(seen)
	}
}

// wait does a few turns of a loop.
func (r *racer) wait(turns int64) {
	for ; turns > 0; turns-- {
		r.at.Load()
	}
}

func raceChild() {
	debug.SetGCPercent(-1)
	d, r := &device{4}, &racer{}
	var both sync.WaitGroup
	both.Add(1)
	go func() { defer both.Done(); r.unmap() }()
	must(onCPU(0))
	done, lost, middle := 0, 0, int64(0)
	for range 100 {
		r.delay.Store(middle + rand.Int64N(20_000) - 10_000)
		resume(d.fd)
		at, errno := freshPages(racePages)
		must(errnoOf(errno))
		r.at.Store(at)
		round := r.round.Add(1)
		r.wait(-r.delay.Load())
		p := uapi.Pin{Flags: bothWays, VA: uint64(at) + page, Size: (racePages - 1) * page}
		switch err := uapi.DoPin(d.fd, &p, nil); {
		case err == nil:
			done++
			middle -= 4000 // a PUT takes a grace period, a PIN that comes too late nothing
			must(uapi.DoPut(d.fd, p.Handle))
		case strings.Contains("EFAULT EAGAIN ESTALE EBUSY", unix.ErrnoName(errnoIn(err))):
			lost++
			middle += 500
		default:
			must(err)
		}
		for r.done.Load() != round {
		}
	}
	r.at.Store(0)
	r.round.Add(1)
	both.Wait()
	fmt.Println(done, lost)
}

func errnoIn(err error) unix.Errno {
	if e, ok := err.(*uapi.Error); ok {
		return e.Errno
	}
	return unix.EINVAL
}

// resume ends a fence, if nobody else does.
func resume(fd int) {
	if i, err := uapi.GetInfo(fd); err == nil && i.State == uapi.StateFenced {
		_, _ = uapi.DoControl(fd, uapi.ControlResume, i.FenceGen)
	}
}

// TestSRCU takes nv-p2p's pins away on one processor, which then is busy with other things, while another processor does
// the same. Where SRCU has a queue of callbacks for each processor, as before Linux 5.19 and with
// srcutree.convert_to_big=1, the first one's callback comes long after the notifier's grace period: what it uses has to
// be there still.
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

// takeAway pins memory and unmaps it. It returns how many pins that ended.
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
