// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

func init() { roles["press"] = press }

const (
	zramBytes  = 256 << 20
	swappedOut = 16384 // sufficient number of pages
)

// number parses a line "name value" or "name: value kB" of a file.
func number(file, name string) int {
	b, err := os.ReadFile(file)
	must(err)
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && strings.TrimSuffix(f[0], ":") == name {
			n, err := strconv.Atoi(f[1])
			must(err)
			return n
		}
	}
	return 0
}

func pagesOut() int { return number("/proc/vmstat", "pswpout") }

// press touches memory until the kernel has swapped out enough of it, and then keeps it.
func press() {
	must(os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0))
	before := pagesOut()
	b, errno := tryMapping(-1, 0, number("/proc/meminfo", "MemTotal")<<10+zramBytes/2, readWrite,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	must(errnoOf(errno))
	for at := 0; at < len(b) && pagesOut()-before < swappedOut; at += 1 << 20 {
		for i := at; i < at+1<<20; i += page {
			*(*int)(unsafe.Pointer(&b[i])) = i + 1 // zram stores no page with equal words
		}
	}
	fmt.Println(pagesOut() - before)
	_, _ = fmt.Scanln()
}

// swapOnZram gives the machine swap in its own compressed memory.
func swapOnZram(t *testing.T) {
	t.Helper()
	const disk = "/dev/zram0"
	if _, err := os.Stat(disk); err != nil {
		t.Skip("NEEDS zram, which this kernel has not")
	}
	write(t, "/sys/block/zram0/disksize", strconv.Itoa(zramBytes))
	t.Cleanup(func() { write(t, "/sys/block/zram0/reset", "1") })
	head := make([]byte, page)
	binary.NativeEndian.PutUint32(head[1024:], 1) // version
	binary.NativeEndian.PutUint32(head[1028:], zramBytes/page-1)
	copy(head[page-10:], "SWAPSPACE2")
	write(t, disk, string(head))
	name := append([]byte(disk), 0)
	call(t, "swapon", unix.SYS_SWAPON, uintptr(address(name)), 0)
	t.Cleanup(func() {
		errno := unix.EINTR
		for errno == unix.EINTR { // Go's signals interrupt it; what was read back stays read back
			_, _, errno = unix.Syscall(unix.SYS_SWAPOFF, uintptr(address(name)), 0, 0)
		}
		if errno != 0 {
			t.Errorf("swapoff: %v", errno)
		}
	})
	write(t, "/proc/sys/vm/swappiness", "200")
	t.Cleanup(func() { write(t, "/proc/sys/vm/swappiness", "60") })
}

// unmapped returns the number of pages of b that the kernel has removed from the page tables.
func unmapped(t *testing.T, b []byte) int {
	t.Helper()
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	entries := make([]byte, len(b)/page*8)
	if _, err := f.ReadAt(entries, int64(address(b)/page*8)); err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; len(entries) > 0; entries = entries[8:] {
		if binary.NativeEndian.Uint64(entries)>>63 == 0 {
			n++
		}
	}
	return n
}

// TestPressure makes the machine swap to zram. Pins of pin_user_pages must stay: pinned pages do not move.
func TestPressure(t *testing.T) {
	s := newScene(t)
	if s.nv {
		return
	}
	swapOnZram(t)
	const size = 4 << 20
	names := []string{"anonymous", "memfd", "driver's"}
	memory := [][]byte{
		anonymous(t, size), mapping(t, memfd(t, size, 0), size, readWrite, unix.MAP_SHARED),
		mapping(t, hostmem(t), kindSize, readWrite, unix.MAP_SHARED),
	}
	pins, iovas := make([]uapi.Pin, len(memory)), make([]uint64, len(memory))
	for i, b := range memory {
		for at := range b {
			b[at] = pattern(at + i)
		}
		pins[i], iovas[i] = s.mustPin(t, b)
	}
	presser := startChild(t, "press", "")
	defer presser.kill(t)
	n, err := strconv.Atoi(presser.line(t))
	if err != nil || n < swappedOut {
		t.Errorf("only %d pages were swapped out: %v", n, err)
	}
	t.Logf("%d pages were swapped out", n)
	t.Logf("%d of the memfd's %d pages were taken out of the page tables", unmapped(t, memory[1]), size/page)
	for _, b := range memory[:2] { // whether or not the kernel has reached them
		if err := unix.Madvise(b, unix.MADV_PAGEOUT); err != nil {
			t.Fatal(err)
		}
	}
	if unmapped(t, memory[1]) == 0 {
		t.Error("the kernel has not tried to take a pinned page: the test shows nothing")
	}
	for i, b := range memory {
		b[1]++
		s.stays(t, pins[i], iovas[i], b)
		for at := 2; at < len(b); at++ {
			if b[at] != pattern(at+i) {
				t.Fatalf("%s: byte %d is %#x", names[i], at, b[at])
			}
		}
		s.put(t, pins[i].Handle)
	}
	if n := s.revoked.count(); n != 0 {
		t.Errorf("%d pins were revoked", n)
	}
}
