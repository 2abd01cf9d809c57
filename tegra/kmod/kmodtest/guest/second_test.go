// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

func init() { roles["resets"] = manyResets }

// kernelUses returns the machine's memory in use, in KiB.
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

// hidden returns the offset at which the page of the MSI-X table can be mapped.
func (d *device) hidden(t *testing.T) uint64 {
	t.Helper()
	r, err := uapi.GetRegion(d.fd, 1)
	if err != nil || r.Flags&uapi.RegionMmap == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	return r.MmapOffset
}

// TestSecondFunctionOnes maps and unmaps an inaccessible register. Reads are served from memory, of which the process
// must not have more than it has mapped.
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

// TestSecondFunctionAttribute changes the rights of a page of ones. The kernel has written it through its caches, so an
// uncached read might see the memory's previous content.
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

// TestSecondEduCleanClose leaves the engine running, releases the memory and closes. The next holder must not get pins at
// the addresses that the engine still uses.
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

// TestSecondEduDeadCharge lets children allocate and end: their allocations must no longer be charged.
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
