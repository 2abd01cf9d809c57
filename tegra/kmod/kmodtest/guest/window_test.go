// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// TestPinWindow replaces a mapping while PIN of it is in progress: after PIN has found the pages, and before the back end
// is notified of changes. A pin that is live afterwards must refer to the new pages.
func TestPinWindow(t *testing.T) {
	noLeak(t)
	const size, before = 48 << 20, 42
	d := open(t).live(t)
	e := d.edu(t)
	for round := range 8 {
		d.live(t)
		b, errno := tryMapping(-1, 0, size, readWrite, unix.MAP_PRIVATE|unix.MAP_ANON)
		wantErrno(t, "mmap", errno, 0)
		_ = unix.Madvise(b, unix.MADV_NOHUGEPAGE)
		for i := 0; i < size; i += page {
			b[i] = before
		}
		replaced := make(chan unix.Errno)
		go func() {
			time.Sleep(time.Duration(round) * time.Millisecond)
			_, _, errno := unix.Syscall6(unix.SYS_MMAP, uintptr(address(b)), size, readWrite,
				unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED, ^uintptr(0), 0)
			replaced <- errno
		}()
		p, segs, err := d.pin(b, bothWays)
		wantErrno(t, "mmap of the same addresses", <-replaced, 0)
		if err == nil && d.query(t, p.Handle).State == uapi.PinLive {
			back := newMemory(t, page)
			_, to := d.mustPin(t, back.bytes)
			e.start(toDevice, segs[0].IOVA)
			e.finish(t)
			e.start(fromDevice, to)
			e.finish(t)
			if b[0] != before && back.bytes[0] == before && d.query(t, p.Handle).State == uapi.PinLive {
				t.Errorf("round %d: the device reads memory that was unmapped before PIN returned", round)
			}
		}
		unmap(t, b, 0)
		if err == nil {
			d.live(t)
			d.put(t, p.Handle)
		}
	}
}
