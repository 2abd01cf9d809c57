// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// Attacks by a process whose threads discard memory endlessly: code that waits until its address space does not change
// waits for ever.

func init() {
	roles["discard"] = discard
	roles["discard file"] = discardFile
}

const (
	discarded   = 4 << 30 // mostly absent bytes: enough page tables for overlapping discards
	discardPins = 400
	discarders  = 12
)

// discard pins pages of memory and then discards it continuously. It first closes the device, or has as many pins revoked
// together as $GUEST_OPEN says.
func discard() {
	d := &device{4}
	b, err := unix.Mmap(-1, 0, discarded, readWrite, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	must(err)
	must(unix.Madvise(b, unix.MADV_NOHUGEPAGE))
	for at := 0; at < len(b); at += 2 << 20 {
		b[at] = 1
	}
	pin := func(b []byte, pins int) {
		for at := 0; at < pins*2*page; at += 2 * page {
			_, _, err := d.pin(b[at:at+page], uapi.PinToDevice)
			must(err)
		}
	}
	var revoked []byte
	if os.Getenv("GUEST_OPEN") == "revoked" {
		pin(b, discardPins)
		revoked, err = unix.Mmap(-1, 0, discardPins*2*page, readWrite, unix.MAP_PRIVATE|unix.MAP_ANON)
		must(err)
		pin(revoked, discardPins)
	} else {
		pin(b, 1)
		d.close()
	}
	for range discarders {
		go func() {
			for {
				_ = unix.Madvise(b, unix.MADV_DONTNEED)
			}
		}()
	}
	time.Sleep(time.Second)
	if revoked != nil {
		must(unix.Munmap(revoked))
	}
	fmt.Println("discards")
	time.Sleep(time.Hour)
}

func discards(t *testing.T, what string, d *device) *child {
	t.Helper()
	c := startChild(t, "discard", what, file(t, newMemory(t, page).fd), file(t, d.fd))
	if line := c.line(t); line != "discards" {
		t.Fatal(line)
	}
	return c
}

// TestCloseAgainstDiscard closes a device through which another process, which keeps discarding memory, has pins.
func TestCloseAgainstDiscard(t *testing.T) {
	noLeak(t)
	for range 3 {
		d := open(t).live(t)
		c := discards(t, "", d)
		within(t, "close", func() error { d.close(); return nil })
		c.kill(t)
	}
	newScene(t).usable(t)
}

// TestWorkersAgainstDiscard makes the module check and release 800 pins of such a process. Meanwhile the pins of others
// must be checked, and released by PUT and close.
func TestWorkersAgainstDiscard(t *testing.T) {
	s := newScene(t)
	c := discards(t, "revoked", s.device)
	d := open(t)
	b := anonymous(t, 16*page)
	p := d.persist(t, b)
	within(t, "the revocation of a pin whose memory is discarded", func() error {
		if err := unix.Madvise(b, unix.MADV_DONTNEED); err != nil {
			return err
		}
		for d.query(t, p.Handle).State == uapi.PinLive {
			time.Sleep(time.Millisecond)
		}
		return nil
	})
	s.besideStarved(t, newMemory(t, pinPages*page))
	c.kill(t)
	s.drained(t)
	s.usable(t)
}

// discardFile pins a private mapping of a file. Its first page is dropped while PIN faults in the others.
func discardFile() {
	d := &device{4}
	fd, err := unix.Open(fuseRoot+"/once", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(err)
	b, err := unix.Mmap(fd, 0, fuseSize, readWrite, unix.MAP_PRIVATE)
	must(err)
	must(unix.Madvise(b, unix.MADV_RANDOM)) // one page at a time
	other, err := unix.Mmap(-1, 0, page, readWrite, unix.MAP_PRIVATE|unix.MAP_ANON)
	must(err)
	go func() {
		_, _ = fmt.Scanln()
		must(unix.Madvise(b[:page], unix.MADV_DONTNEED))
		must(unix.Fadvise(fd, 0, page, unix.FADV_DONTNEED))
		fmt.Println("dropped")
		_, _ = fmt.Scanln()
		must(unix.Munmap(other))
		fmt.Println("changed")
	}()
	_, _, err = d.pin(b, uapi.PinToDevice)
	fmt.Println("PIN:", err)
	time.Sleep(time.Hour)
}

// TestPinAgainstDroppedFile lets a file's server not answer for a page that is dropped during PIN. No other process may
// wait for it, not even for mmap_lock.
func TestPinAgainstDroppedFile(t *testing.T) {
	d := open(t).live(t)
	server := fuse(t)
	c := startChild(t, "discard file", "", file(t, newMemory(t, page).fd), file(t, d.fd))
	for _, step := range []struct {
		who, next *child
		says      string
	}{
		{server, c, "half way"}, {c, server, "dropped"}, {server, c, "stalled"},
	} {
		if line := step.who.line(t); line != step.says {
			t.Fatalf("%q, want %q", line, step.says)
		}
		fmt.Fprintln(step.next.in)
	}
	within(t, "a change of the process's mappings", func() error {
		if line := c.line(t); line != "changed" {
			t.Error(line)
		}
		return nil
	})
	_ = server.Process.Kill()
	c.kill(t)
}
