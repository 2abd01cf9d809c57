// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// memory is size bytes that do not move, page aligned.
func memory(t testing.TB, size int) ([]byte, uintptr) {
	t.Helper()
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return b, uintptr(unsafe.Pointer(&b[0]))
}

func open(t testing.TB, c Config) *Driver {
	t.Helper()
	if c.Settings == nil {
		c.Settings = DefaultSettings()
	}
	c.Logger = slog.New(slog.DiscardHandler)
	d, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil && !errors.Is(err, DriverNotInitialized) {
			t.Error(err)
		}
	})
	return d
}

func file(t testing.TB, folder string, flags int) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(folder, fmt.Sprintf("f%d", rand.Uint64())), os.O_CREATE|flags, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// ways are the engines and the accesses that every test of transfers runs with, on two file systems.
func ways(t *testing.T, test func(t *testing.T, d *Driver, folder string)) {
	folders := map[string]string{"disk": t.TempDir()}
	if shm, err := os.MkdirTemp("/dev/shm", "cufile"); err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(shm) })
		folders["tmpfs"] = shm
	} else {
		t.Logf("not tested on tmpfs, which needs /dev/shm: %v", err)
	}
	for where, folder := range folders {
		for _, calls := range []bool{false, true} {
			for _, access := range []Access{Measured, Direct, Buffered} {
				t.Run(fmt.Sprintf("%s/calls=%t/%d", where, calls, access), func(t *testing.T) {
					set := DefaultSettings()
					set.MaxDirectIO = 64 // so that transfers have several pieces
					d := open(t, Config{Settings: set, Calls: calls, Access: access})
					if p, err := d.Properties(); err != nil || p.URing == calls && !calls {
						t.Logf("this kernel has no io_uring, which this test needs: %+v, %v", p, err)
					}
					test(t, d, folder)
				})
			}
		}
	}
}

// TestTransfers: whatever the alignment, files and memory have what an ordinary file would have, and no byte outside of the
// wanted range changes.
func TestTransfers(t *testing.T) {
	ways(t, func(t *testing.T, d *Driver, folder string) {
		flags := os.O_RDWR
		f := file(t, folder, flags)
		h, err := d.RegisterFile(f)
		if err != nil {
			t.Fatal(err)
		}
		const most = 400_000
		mem, base := memory(t, 1<<20)
		if err := d.RegisterBuffer(base, len(mem), 0); err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(1, 2))
		want := make([]byte, 0, 2<<20)
		at := func(limit int) int { // often aligned
			n := r.IntN(limit)
			if r.IntN(2) == 0 {
				n &^= 4095
			}
			return n
		}
		for range 80 {
			size, off, in := at(most), at(1<<20), at(1<<19)
			model := bytes.Clone(mem)
			if r.IntN(2) == 0 {
				for i := range size {
					mem[in+i] = byte(r.Uint32())
				}
				n, err := h.Write(base, size, int64(off), int64(in))
				if n != size || err != nil {
					t.Fatalf("write of %d bytes at %d: %d, %v", size, off, n, err)
				}
				if size > 0 && off+size > len(want) {
					want = append(want, make([]byte, off+size-len(want))...)
				}
				copy(want[min(off, len(want)):], mem[in:in+size])
				continue
			}
			n, err := h.Read(base, size, int64(off), int64(in))
			if expect := max(0, min(size, len(want)-off)); n != expect || err != nil {
				t.Fatalf("read of %d bytes at %d of %d: %d, want %d, %v", size, off, len(want), n, expect, err)
			}
			copy(model[in:], want[min(off, len(want)):min(off+n, len(want))])
			copy(model[in+n:in+size], mem[in+n:]) // a disk reads whole sectors, also beyond the end of the file
			if !bytes.Equal(mem, model) {
				t.Fatalf("read of %d bytes at %d into %d: the memory is not what it should be", size, off, in)
			}
		}
		if got, err := os.ReadFile(f.Name()); err != nil || !bytes.Equal(got, want) {
			t.Errorf("the file has %d bytes and not the %d that were written: %v", len(got), len(want), err)
		}
		if err := h.Sync(); err != nil {
			t.Error(err)
		}
		if err := h.Deregister(); err != nil {
			t.Error(err)
		}
		if err := d.DeregisterBuffer(base); err != nil {
			t.Error(err)
		}
	})
}

// TestBatch: many transfers of several files at once, in any order.
func TestBatch(t *testing.T) {
	ways(t, func(t *testing.T, d *Driver, folder string) {
		mem, base := memory(t, 4<<20)
		for i := range mem {
			mem[i] = byte(i * 7 >> 3)
		}
		const piece, files = 10_000, 3
		var list [files]*File
		var plain [files]*os.File
		for i := range list {
			plain[i] = file(t, folder, os.O_RDWR)
			h, err := d.RegisterFile(plain[i])
			if err != nil {
				t.Fatal(err)
			}
			list[i] = h
		}
		var ops []Op
		for n := range 400 {
			at := int64(n * piece)
			ops = append(ops, Op{File: list[n%files], Write: true, Base: base, Offset: at, Size: piece, FileOffset: at / files / piece * piece})
		}
		b, err := d.Submit(ops)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, e := range b.Status() {
			if e != (Event{Status: Complete, N: piece}) {
				t.Fatalf("transfer %d: %+v", i, e)
			}
		}
		b2, err := d.Submit([]Op{{File: list[0], Base: base, Offset: 0, Size: 2 * piece, FileOffset: 133 * piece}, {File: list[1], Base: base, Size: 0}})
		if err != nil {
			t.Fatal(err)
		}
		if err := b2.Wait(t.Context()); err != nil || b2.Status()[0] != (Event{Status: Complete, N: piece}) || b2.Status()[1].Status != Complete {
			t.Errorf("at the end of the file: %+v, %v", b2.Status(), err)
		}
		for i, f := range plain {
			got, err := os.ReadFile(f.Name())
			if err != nil {
				t.Fatal(err)
			}
			for k := 0; k*piece < len(got); k++ {
				if n := files*k + i; n > 1 && !bytes.Equal(got[k*piece:(k+1)*piece], mem[n*piece:(n+1)*piece]) {
					t.Fatalf("file %d, piece %d differs", i, k)
				}
			}
		}
	})
}

// statusOf is the Status of an error.
func statusOf(err error) Status {
	var e *Error
	if errors.As(err, &e) {
		return e.Status
	}
	return Success
}

// TestStatuses: each call's errors, by the sections of the document.
func TestStatuses(t *testing.T) {
	for _, calls := range []bool{false, true} {
		d := open(t, Config{Calls: calls})
		f := file(t, t.TempDir(), os.O_RDWR)
		h, err := d.RegisterFile(f)
		if err != nil {
			t.Fatal(err)
		}
		mem, base := memory(t, 1<<20)
		read := func(size int, off, at int64) error { _, err := h.Read(base, size, off, at); return err }
		register := func(flags int) error { _, err := d.RegisterFile(file(t, t.TempDir(), flags)); return err }
		opened := func(path string) error {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			_, err = d.RegisterFile(f)
			return err
		}
		for _, c := range []struct {
			what string
			err  error
			want Status
		}{
			{"4.2.1: no file", func() error { _, err := d.RegisterFile(nil); return err }(), InvalidValue},
			{"4.2.1: the same descriptor", func() error { _, err := d.RegisterFile(f); return err }(), HandleAlreadyRegistered},
			{"4.2.1: O_APPEND", register(os.O_RDWR | unix.O_APPEND), InvalidFileOpenFlag},
			{"4.2.1: O_NOATIME", register(os.O_RDWR | unix.O_NOATIME), InvalidFileOpenFlag},
			{"4.2.1: O_NOFOLLOW", register(os.O_RDWR | unix.O_NOFOLLOW), InvalidFileOpenFlag},
			{"4.2.1: O_NONBLOCK", register(os.O_RDWR | unix.O_NONBLOCK), InvalidFileOpenFlag},
			{"4.2.1: a folder", opened(t.TempDir()), InvalidFileType},
			{"4.2.1: a character device", opened("/dev/null"), InvalidFileType},
			{"4.3.1: flags", d.RegisterBuffer(base, 4096, 1), InvalidValue},
			{"4.3.1: no memory", d.RegisterBuffer(0, 4096, 0), InvalidValue},
			{"4.3.1: no bytes", d.RegisterBuffer(base, 0, 0), InvalidValue},
			{"4.3.1", d.RegisterBuffer(base, len(mem), 0), Success},
			{"4.3.1: again", d.RegisterBuffer(base, len(mem), 0), MemoryAlreadyRegistered},
			{"4.3.1: a part of it", d.RegisterBuffer(base+4096, 4096, 0), MemoryAlreadyRegistered},
			{"4.3.2: not registered", d.DeregisterBuffer(base + 4096), MemoryNotRegistered},
			{"4.2.3: beyond the memory", read(4096, 0, int64(len(mem))-4095), InvalidMappingRange},
			{"4.2.3: a negative size", read(-1, 0, 0), InvalidValue},
			{"4.2.3: a negative offset", read(1, -1, 0), InvalidValue},
			{"4.2.3: a negative offset in memory", read(1, 0, -1), InvalidValue},
			{"4.1.4: not of 4 KiB", d.SetPollMode(true, 3), DriverUnsupportedLimit},
			{"4.1.4", d.SetPollMode(true, 8), Success},
			{"4.1.5: zero", d.SetMaxDirectIOSize(0), DriverUnsupportedLimit},
			{"4.1.5", d.SetMaxDirectIOSize(1024), Success},
			{"4.1.6: not of 4 KiB", d.SetMaxCacheSize(5), DriverUnsupportedLimit},
			{"4.1.6", d.SetMaxCacheSize(8), Success},
			{"4.1.7: not of 4 KiB", d.SetMaxPinnedMemSize(5), DriverUnsupportedLimit},
			{"4.1.7: no limit", d.SetMaxPinnedMemSize(^uint64(0)), Success},
			{"4.1.7", d.SetMaxPinnedMemSize(1024), Success},
			{"4.3.1: more than the limit", func() error { _, b := memory(t, 8192); return d.RegisterBuffer(b, 8192, 0) }(), InvalidMappingSize},
			{"4.5.1: no transfer", func() error { _, err := d.Submit(nil); return err }(), InvalidValue},
			{"4.5.1: no file", func() error { _, err := d.Submit([]Op{{}}); return err }(), HandleNotRegistered},
			{"4.2.2", h.Deregister(), Success},
			{"4.2.2: again", h.Deregister(), HandleNotRegistered},
			{"4.2.3: not registered", read(1, 0, 0), HandleNotRegistered},
			{"4.1.2", d.Close(), Success},
			{"4.1.2: again", d.Close(), DriverNotInitialized},
			{"4.2.3: the driver is closed", read(1, 0, 0), DriverNotInitialized},
			{"4.1.4: the driver is closed", d.SetPollMode(true, 8), DriverNotInitialized},
			{"4.3.1: the driver is closed", d.RegisterBuffer(base, 4096, 0), DriverNotInitialized},
		} {
			if got := statusOf(c.err); got != c.want || (c.err == nil) != (c.want == Success) {
				t.Errorf("%s: %v, want %v", c.what, c.err, c.want)
			}
		}
	}
	set := DefaultSettings()
	set.AllowCompat = false
	if _, err := Open(Config{Settings: set}); !errors.Is(err, DriverNotInitialized) || !strings.Contains(err.Error(), "allow_compat_mode") {
		t.Errorf("compatibility mode is not allowed: %v", err)
	}
}

// TestErrnos: what the kernel refuses comes as its errno.
func TestErrnos(t *testing.T) {
	ways(t, func(t *testing.T, d *Driver, folder string) {
		f := file(t, folder, os.O_WRONLY)
		h, err := d.RegisterFile(f)
		if err != nil {
			t.Fatal(err)
		}
		_, base := memory(t, 1<<20)
		if n, err := h.Read(base, 300_000, 0, 0); n != 0 || !errors.Is(err, unix.EBADF) {
			t.Errorf("reading a file that is open for writing: %d, %v", n, err)
		}
		b, err := d.Submit([]Op{{File: h, Base: base, Size: 4096}})
		if err != nil {
			t.Fatal(err)
		}
		_ = b.Wait(t.Context())
		if e := b.Status()[0]; e.Status != Failed || !errors.Is(e.Err, unix.EBADF) {
			t.Errorf("%+v", e)
		}
	})
}

// TestCloseWhileTransfersRun: they end, well or with DriverClosing, and Close waits for them.
func TestCloseWhileTransfersRun(t *testing.T) {
	for _, calls := range []bool{false, true} {
		d := open(t, Config{Calls: calls})
		h, err := d.RegisterFile(file(t, t.TempDir(), os.O_RDWR))
		if err != nil {
			t.Fatal(err)
		}
		_, base := memory(t, 1<<20)
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for range 2000 {
					_, err := h.Write(base, 8192, int64(i*8192), 0)
					if err != nil {
						if !errors.Is(err, DriverNotInitialized) && !errors.Is(err, DriverClosing) && !errors.Is(err, HandleNotRegistered) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		time.Sleep(20 * time.Millisecond)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
	}
}

// TestCancel: what has not begun does not begin.
func TestCancel(t *testing.T) {
	d := open(t, Config{})
	h, err := d.RegisterFile(file(t, t.TempDir(), os.O_RDWR))
	if err != nil {
		t.Fatal(err)
	}
	_, base := memory(t, 1<<20)
	var ops []Op
	for i := range 5000 {
		ops = append(ops, Op{File: h, Write: true, Base: base, Size: 1 << 18, FileOffset: int64(i%64) << 18})
	}
	b, err := d.Submit(ops)
	if err != nil {
		t.Fatal(err)
	}
	b.Cancel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := b.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	count := map[OpStatus]int{}
	for _, e := range b.Status() {
		count[e.Status]++
	}
	if count[Canceled] == 0 || count[Canceled]+count[Complete] != len(ops) {
		t.Errorf("%v", count)
	}
}
