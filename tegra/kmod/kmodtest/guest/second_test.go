package guest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"tegracast/tegra/uapi"
)

func init() { roles["resets"] = manyResets }

// kernelUses is how much of the machine's memory is in use, in KiB.
func kernelUses(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]int{}
	for line := range strings.Lines(string(b)) {
		var n int
		name, rest, _ := strings.Cut(line, ":")
		if _, err := fmt.Sscan(rest, &n); err == nil {
			values[name] = n
		}
	}
	return values["MemTotal"] - values["MemFree"] - values["Cached"] - values["Slab"]
}

// hidden is where the page of the MSI-X table can be mapped.
func (d *device) hidden(t *testing.T) uint64 {
	t.Helper()
	r, err := uapi.GetRegion(d.fd, 1)
	if err != nil || r.Flags&uapi.RegionMmap == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	return r.MmapOffset
}

// TestSecondFunctionOnes maps and unmaps a register that is out of reach. What it reads instead is memory, of which the
// process must not have more than it has mapped.
func TestSecondFunctionOnes(t *testing.T) {
	asNobody(t, func(t *testing.T, d *device) {
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{}); err != nil {
			t.Fatal(err)
		}
		const n = 20000
		offset, before := d.hidden(t), kernelUses(t)
		for range n {
			b, errno := tryMapping(d.fd, offset, page, unix.PROT_READ, unix.MAP_SHARED)
			if errno != 0 {
				t.Fatal(errno)
			}
			if b[0] != 0xff {
				t.Fatalf("%#x", b[0])
			}
			unmap(t, b, 0)
		}
		if grown := kernelUses(t) - before; grown > n {
			t.Errorf("%d KiB more of the machine's memory are in use; none is mapped, and RLIMIT_MEMLOCK is 0", grown)
		}
	})
}

// TestSecondFunctionAttribute changes the rights of a page of ones. The kernel has written it through its caches, so who
// reads it past them may read what its memory had before.
func TestSecondFunctionAttribute(t *testing.T) {
	f, err := os.OpenFile("/dev/second", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := open(t)
	b, errno := tryMapping(d.fd, d.hidden(t), page, readWrite, unix.MAP_SHARED)
	if errno != 0 {
		t.Fatal(errno)
	}
	defer unmap(t, b, 0)
	attribute := func() uintptr {
		if *(*byte)(unsafe.Pointer(unsafe.SliceData(b))) != 0xff {
			t.Error("not ones")
		}
		pte, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), 0, uintptr(address(b)))
		if errno != 0 {
			t.Fatal(errno)
		}
		return pte >> 2 & 7
	}
	before := attribute()
	if err := unix.Mprotect(b, unix.PROT_READ); err != nil {
		t.Logf("mprotect: %v", err)
	}
	if after := attribute(); after != before {
		t.Errorf("attribute %d of the page is %d after mprotect", before, after)
	}
}

// manyResets resets the function from many threads at once.
func manyResets() {
	for range 100 {
		go func() { _, _ = uapi.DoControl(4, uapi.ControlReset, 0) }()
	}
	time.Sleep(time.Second)
	fmt.Println("ready")
	time.Sleep(time.Hour)
}

// TestSecondFunctionResets kills a process whose threads wait for each other's resets.
func TestSecondFunctionResets(t *testing.T) {
	d := open(t)
	begin := time.Now()
	if _, err := uapi.DoControl(d.fd, uapi.ControlReset, 0); err != nil {
		t.Fatal(err)
	}
	t.Logf("a reset takes %v", time.Since(begin))
	c := exec.Command("/guest.test")
	c.Env = []string{"GUEST_ROLE=resets"}
	c.ExtraFiles = []*os.File{os.Stdin, file(t, d.fd)}
	defer c.ExtraFiles[1].Close()
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = out.Read(make([]byte, 8))
	begin = time.Now()
	_ = c.Process.Kill()
	_ = c.Wait()
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("the process ended %v after it was killed", took)
	}
}

// TestSecondEduCleanClose leaves the engine at work, gives the memory back and closes. The next holder must not pin memory
// under the addresses that the engine still has.
func TestSecondEduCleanClose(t *testing.T) {
	for range 10 {
		s := openScene(t)
		p, iova := s.mustPin(t, anonymous(t, page))
		m := newMemory(t, page)
		s.edu.start(fromDevice, iova)
		started := s.edu.started
		s.put(t, p.Handle)
		s.edu.close()
		s.close()

		next := open(t)
		state := next.info(t).State
		if state == uapi.StateFenced {
			next.close()
			time.Sleep(2 * eduTime)
			continue
		}
		_, theirs, err := next.pin(m.bytes, bothWays)
		flying := time.Since(started) < eduTime
		time.Sleep(2 * eduTime)
		changed := 0
		for i, v := range m.pages {
			if v != pattern(i) {
				changed++
			}
		}
		t.Errorf("the next holder finds state %d; PIN: %v %#x, the last holder's was %#x; in flight %v: %d bytes of the next holder's memory changed",
			state, err, theirs, iova, flying, changed)
		next.close()
		return
	}
}

// TestSecondEduDeadCharge has children allocate and end: what they leave counts against nobody.
func TestSecondEduDeadCharge(t *testing.T) {
	asNobody(t, func(t *testing.T, d *device) {
		const limit, size, children = 64 << 10, 64 << 10, 400
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			t.Fatal(err)
		}
		a := shared(t, uapi.Alloc{Argsz: uint32(unsafe.Sizeof(uapi.Alloc{})), Size: size})
		n := 0
		for range children {
			if err := inFork(t, d.fd, uapi.CallAlloc, unsafe.Pointer(a.v)); err != nil {
				t.Logf("ALLOC by a child: %v", err)
				break
			}
			n++
		}
		if got := d.info(t).PinnedBytes; got > 4*limit {
			t.Errorf("%d KiB of the kernel's memory by %d children that have ended; RLIMIT_MEMLOCK is %d KiB", got>>10, n, limit>>10)
		}
	})
}

// TestSecondEduReadOnlyBuffer has the function write into a buffer that may only be read.
func TestSecondEduReadOnlyBuffer(t *testing.T) {
	f, err := os.OpenFile("/dev/second", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), 1, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	defer unix.Close(int(fd))
	if flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0); err != nil || flags&unix.O_ACCMODE != unix.O_RDONLY {
		t.Fatalf("flags %#x, %v", flags, err)
	}
	view, err := unix.Mmap(int(f.Fd()), 0, page, readWrite, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(view) }()
	s := newScene(t)
	b, segs, err := s.imported(int(fd), uapi.PinFromDevice)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range view {
		view[i] = 0xa5
	}
	s.edu.start(fromDevice, segs[0].IOVA)
	s.edu.finish(t)
	changed := 0
	for _, v := range view {
		if v != 0xa5 {
			changed++
		}
	}
	t.Errorf("a dma-buf that is open for reading is mapped to be written; %d bytes were", changed)
	s.put(t, b.Handle)
}

// TestSecondEduPostponed changes a mapping again and again: the pin ends nevertheless.
func TestSecondEduPostponed(t *testing.T) {
	s := newScene(t)
	b := anonymous(t, page)
	var longest time.Duration
	for range times {
		p, _ := s.mustPin(t, b)
		begin := time.Now()
		for n := 0; time.Since(begin) < time.Second && (n%100 != 0 || s.query(t, p.Handle).State == uapi.PinLive); n++ {
			call(t, "madvise", unix.SYS_MADVISE, uintptr(address(b)), page, unix.MADV_DONTNEED)
			b[0] = byte(n)
		}
		longest = max(longest, time.Since(begin))
		s.revoked.wait(t)
		s.live(t)
		s.put(t, p.Handle)
	}
	t.Logf("the longest time that a pin was live after its page had gone: %v", longest)
	if longest > 500*time.Millisecond {
		t.Errorf("changes of a mapping put off the end of its pin")
	}
}

// TestSecondNotifiers has threads change the first pages of pins at once: the provider's notifier must not be called for a
// pin that another thread is just taking out, which the kernel warns of.
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

// TestSecondEduFork pins private memory whose first page a child does not get. What the function then writes into the rest
// must not show in the child.
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

// TestSecondEduBuffers has threads export, import, put, unmap and resume at once, on a function that goes and comes back.
func TestSecondEduBuffers(t *testing.T) {
	noLeak(t)
	for range 5 {
		bufferStorm(t)
	}
}

// storm is what the threads of TestSecondEduBuffers share.
type storm struct {
	*device
	fd      int
	b       []byte
	change  sync.Mutex // of the mapping: nv-p2p has WARN called when there are two at once
	bufs    [16]atomic.Int32
	handles [16]atomic.Uint32
	did     [7]atomic.Int64
}

func (s *storm) keep(fd int) {
	if old := s.bufs[rand.IntN(len(s.bufs))].Swap(int32(fd)); old > 0 {
		unix.Close(int(old))
	}
}

// act does one of the calls.
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
		fd, err := uapi.DoExport(s.device.fd, handle.Load())
		if err == nil {
			s.keep(fd)
		}
		return err
	case 2:
		m, _, err := s.imported(int(s.bufs[rand.IntN(len(s.bufs))].Load()), bothWays)
		if err == nil {
			_ = uapi.DoPut(s.device.fd, handle.Swap(m.Handle))
		}
		return err
	case 3:
		return uapi.DoPut(s.device.fd, handle.Load())
	case 4:
		info, err := uapi.GetInfo(s.device.fd)
		if err == nil {
			_, err = uapi.DoControl(s.device.fd, uapi.ControlResume, info.FenceGen)
		}
		return err
	}
	s.change.Lock()
	defer s.change.Unlock()
	if op == 5 {
		_, _, errno := unix.Syscall6(unix.SYS_MMAP, uintptr(address(s.b))+uintptr(at), page, readWrite,
			unix.MAP_SHARED|unix.MAP_FIXED, uintptr(s.fd), uintptr(at))
		return errnoOf(errno)
	}
	return unix.Fallocate(s.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(at), page)
}

func bufferStorm(t *testing.T) {
	const pages = 8
	s := &storm{device: open(t), fd: memfd(t, pages*page, 0)}
	var errno unix.Errno
	if s.b, errno = tryMapping(s.fd, 0, pages*page, readWrite, unix.MAP_SHARED); errno != 0 {
		t.Fatal(errno)
	}
	odds := []int{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 5, 6}
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
	for range 1000 {
		s.keep(0)
	}
	s.close()
	unmap(t, s.b, 0)
	write(t, "/sys/bus/pci/drivers_probe", function)
	var said []int64
	for i := range s.did {
		said = append(said, s.did[i].Load())
	}
	t.Log("PIN, EXPORT, IMPORT, PUT, RESUME, mmap, punch:", said)
}
