// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"os"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

func init() { roles["stalled"] = stalledPin }

const stalledPins = 132 // more than the module has workers

// stalledPin pins the memory page by page, and then makes the kernel fault in a file that is never read: by a PIN, or by
// io_uring, which meanwhile holds mmap_lock. On request it changes its mappings.
func stalledPin() {
	d := &device{4}
	b, err := unix.Mmap(3, page, stalledPins*page, readWrite, unix.MAP_SHARED)
	must(err)
	var last uapi.Pin
	for ; len(b) > 0; b = b[page:] {
		last, _, err = d.pin(b[:page], bothWays)
		must(err)
	}
	other, err := unix.Mmap(-1, 0, page, readWrite, unix.MAP_PRIVATE|unix.MAP_ANON)
	must(err)
	fd, err := unix.Open(fuseRoot+"/stalled", unix.O_RDWR|unix.O_CLOEXEC, 0)
	must(err)
	file, err := unix.Mmap(fd, 0, page, readWrite, unix.MAP_PRIVATE)
	must(err)
	stall := func() error { _, _, err := d.pin(file, bothWays); return err }
	if os.Getenv("GUEST_OPEN") == "io_uring" {
		stall = ringBuffer(file)
	}
	go func() {
		if _, err := fmt.Scanln(); err == nil {
			_ = unix.Munmap(other)
		}
	}()
	fmt.Println(last.Handle)
	fmt.Println(stall())
	time.Sleep(time.Hour)
}

// ringBuffer creates an io_uring and returns a call that registers b with it.
func ringBuffer(b []byte) func() error {
	const registerBuffers = 0
	ring, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&[15]uint64{})), 0)
	must(errnoOf(errno))
	return func() error {
		buffer := unix.Iovec{Base: &b[0], Len: uint64(len(b))}
		_, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, ring, registerBuffers, uintptr(unsafe.Pointer(&buffer)), 1, 0, 0)
		return errnoOf(errno)
	}
}

// stall is the time limit for calls that must not wait for the file's server.
const stall = patience / 4

// within fails the test, and makes the kernel log the waiting tasks, if act does not end.
func within(t *testing.T, what string, act func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- act() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(stall):
		t.Errorf("%s waits", what)
		_ = os.WriteFile("/proc/sysrq-trigger", []byte("w"), 0)
	}
}

// TestStalledFuse pins a file whose server does not answer, in another process. Only that process may wait for the
// server.
func TestStalledFuse(t *testing.T) {
	for name, how := range map[string]struct {
		by      string
		changes bool
	}{
		"PIN": {"PIN", false}, "PIN while a mapping changes": {"PIN", true}, "io_uring while a mapping changes": {"io_uring", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			server := fuse(t)
			m := newMemory(t, stalledPins*page)
			c := startChild(t, "stalled", how.by, file(t, m.fd), file(t, s.fd))
			var handle uint32
			if _, err := fmt.Sscan(c.line(t), &handle); err != nil {
				t.Fatal(err)
			}
			if line := server.line(t); line != "stalled" {
				t.Fatal(line)
			}
			if how.changes {
				fmt.Fprintln(c.in)
				time.Sleep(time.Second)
			}
			s.besideStalled(t, m, handle)
			if how.by == "io_uring" { // the kernel's own wait, which ends only with the server
				_ = server.Process.Kill()
			}
			within(t, "the end of the process", func() error { c.kill(t); return nil })
			_ = server.Process.Kill()
			bind(t)
			m.free(t)
			s.edu.close()
			s.close()
			newScene(t).usable(t)
		})
	}
}

// besideStalled does everything that must not wait, and unbinds the driver. The waiting process has pinned m.
func (s *scene) besideStalled(t *testing.T, m *memory, handle uint32) {
	t.Helper()
	pin := func(d *device) func() error {
		b := anonymous(t, page)
		return func() error { _, _, err := d.pin(b, bothWays); return err }
	}
	other := open(t)
	within(t, "PIN", pin(s.device))
	within(t, "another descriptor's PIN", pin(other))
	within(t, "QUERY", func() error { return uapi.DoQuery(s.fd, &uapi.Query{Handle: handle}, nil) })
	within(t, "a hole in the process's memory", func() error {
		return unix.Fallocate(m.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, (1+stalledPins)*page)
	})
	within(t, "close", func() error { other.close(); return nil })
	within(t, "the revocation of its pins", func() error { s.revoked.wait(t); return nil })
	within(t, "unbind", func() error {
		return os.WriteFile("/sys/bus/pci/drivers/tegra_p2p/unbind", []byte(function), 0)
	})
}
