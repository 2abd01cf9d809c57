// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	vt "github.com/tegracast/tegracast/fpga/vfiouser/vfiousertest"
)

const (
	page = 4096
	both = uint32(3)
)

func TestMap(t *testing.T) {
	c := serve(t).connect(t)
	fd := memfd(t, "ram", 16*page)
	works(t, "map", c.Map(0x10000, 4*page, 0, both, fd), nil)
	works(t, "adjacent below", c.Map(0x0f000, page, page, both, fd), nil)
	works(t, "adjacent above", c.Map(0x14000, page, page, both, fd), nil)
	works(t, "without a file", c.Map(0x20000, page, 0, 1, -1), nil)
	works(t, "the last page", c.Map(^uint64(page-1), page, 15*page, both, fd), nil)
	closed := memfd(t, "small", page-1)
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for name, r := range map[string]struct {
		got   vt.Reply
		errno unix.Errno
	}{
		"the same":        {c.Map(0x10000, 4*page, 0, both, fd), unix.EEXIST},
		"within":          {c.Map(0x11000, page, 0, both, fd), unix.EEXIST},
		"around":          {c.Map(0x0d000, 64*page, 0, both, -1), unix.EEXIST},
		"its end":         {c.Map(0x13000, 2*page, 0, both, fd), unix.EEXIST},
		"nothing":         {c.Map(0x30000, 0, 0, both, fd), unix.EINVAL},
		"half a page":     {c.Map(0x30000, page/2, 0, both, fd), unix.EINVAL},
		"address":         {c.Map(0x30001, page, 0, both, fd), unix.EINVAL},
		"offset":          {c.Map(0x30000, page, 1, both, fd), unix.EINVAL},
		"beyond the file": {c.Map(0x30000, 2*page, 15*page, both, fd), unix.EINVAL},
		"offset beyond":   {c.Map(0x30000, page, 1<<63, both, fd), unix.EINVAL},
		"wraps":           {c.Map(^uint64(page-1), 2*page, 0, both, fd), unix.EINVAL},
		"small file":      {c.Map(0x30000, page, 0, both, closed), unix.EINVAL},
		"a folder":        {c.Map(0x30000, page, 0, both, int(dir.Fd())), unix.EINVAL},
		"flags":           {c.Map(0x30000, page, 0, 4, fd), unix.EINVAL},
		"argsz":           {c.Do(vt.DMAMap, vt.Cat(uint32(31), both, uint64(0), uint64(0x30000), uint64(page)), fd), unix.EINVAL},
		"short":           {c.Do(vt.DMAMap, vt.Cat(uint32(32), both), fd), unix.EINVAL},
		"long":            {c.Do(vt.DMAMap, vt.Cat(uint32(36), both, uint64(0), uint64(0x30000), uint64(page), no), fd), unix.EINVAL},
		"two files":       {c.Do(vt.DMAMap, vt.Cat(uint32(32), both, uint64(0), uint64(0x30000), uint64(page)), fd, fd), unix.EINVAL},
		"unmap part":      {c.Unmap(0x10000, page, 0), unix.EINVAL},
		"unmap its end":   {c.Unmap(0x12000, 3*page, 0), unix.EINVAL},
		"unmap nothing":   {c.Unmap(0x10000, 0, 0), unix.EINVAL},
		"unmap wraps":     {c.Unmap(0x10000, ^uint64(page-1), 0), unix.EINVAL},
		"unmap flags":     {c.Unmap(0x10000, 4*page, 1), unix.EINVAL},
		"unmap all of":    {c.Unmap(0x10000, 4*page, 2), unix.EINVAL},
		"unmap short":     {c.Do(vt.DMAUnmap, vt.Cat(uint32(24), no, uint64(0))), unix.EINVAL},
		"unmap argsz":     {c.Do(vt.DMAUnmap, vt.Cat(uint32(23), no, uint64(0), uint64(page))), unix.EINVAL},
	} {
		fails(t, name, r.got, r.errno)
	}
	for _, r := range [][2]uint64{{0x40000, page}, {1 << 40, 1 << 43}, {0x0f000, 6 * page}, {0x10000, 4 * page}} {
		works(t, "unmap", c.Unmap(r[0], r[1], 0), vt.Cat(uint32(24), no, r[0], r[1])) // also where nothing is mapped
	}
	works(t, "map again", c.Map(0x10000, 4*page, 0, both, fd), nil)
	works(t, "unmap all", c.Unmap(0, 0, 2), vt.Cat(uint32(24), uint32(2), uint64(0), uint64(0)))
	works(t, "map again", c.Map(^uint64(page-1), page, 0, both, fd), nil)
}

// TestAccess reads and writes across adjacent ranges, and finds every hole.
func TestAccess(t *testing.T) {
	d := serve(t)
	c := d.connect(t)
	ram := c.NewRAM(16 * page)
	copy(ram.Bytes, bytes.Repeat([]byte("0123456789abcdef"), page))
	m := d.memory
	c.Map(0x10000, page, 3*page, both, ram.FD)
	if err := m.Read(0x10000, make([]byte, 1)); !errors.Is(err, ErrBusMaster) {
		t.Errorf("without Bus Master Enable: %v", err)
	}
	c.Write(7, 4, []byte{4, 0})
	c.Map(0x11000, page, 0, both, ram.FD)
	c.Map(0x12000, page, 7*page, 1, ram.FD)
	c.Map(0x13000, page, 8*page, 2, ram.FD)
	c.Map(0x14000, page, 0, both, -1)
	c.Map(^uint64(page-1), page, 5*page, both, ram.FD)
	p := make([]byte, 2*page)
	if err := m.Read(0x10800, p); err != nil || !bytes.Equal(p, slices.Concat(ram.Bytes[3*page+0x800:4*page], ram.Bytes[:page], ram.Bytes[7*page:7*page+0x800])) {
		t.Errorf("over three ranges: %v", err)
	}
	before := bytes.Clone(ram.Bytes)
	for _, x := range accesses {
		x.check(t, d)
	}
	if before[6*page-1] = 0; !bytes.Equal(ram.Bytes, before) { // the only permitted write
		t.Error("an access that was refused has moved bytes")
	}
	for i := range 40 {
		_ = m.Read(0x100000+uint64(i), p)
	}
	c.Write(7, 4, []byte{2, 0})
	if err := m.Read(0x10000, make([]byte, 1)); !errors.Is(err, ErrBusMaster) {
		t.Errorf("Bus Master Enable was cleared: %v", err)
	}
	if last := d.Books().LastRefused; len(last) != 16 || last[0].Addr != 0x100019 || last[14].Addr != 0x100027 || last[15].Addr != 0x10000 {
		t.Errorf("the last refusals are %+v", last)
	}
}

// access is an access of n bytes that is refused at an address; 0: it succeeds.
type access struct {
	addr  uint64
	n     int
	write bool
	at    uint64
}

// accesses are made on TestAccess's ranges.
var accesses = []access{
	{0x10fff, 2, false, 0},
	{0x11fff, 2, true, 0x12000}, // read-only
	{0x12fff, 2, false, 0x13000},
	{0x13fff, 2, true, 0x14000}, // no file
	{0x0ffff, 2, false, 0x0ffff},
	{0x15000, 1, false, 0x15000},
	{0x16000, 1, true, 0x16000},
	{^uint64(0), 1, true, 0},
	{^uint64(0), 2, true, ^uint64(0)},
	{0x10000, 0, true, 0},
}

func (x access) check(t *testing.T, d *device) {
	t.Helper()
	do := d.memory.Read
	if x.write {
		do = d.memory.Write
	}
	before := d.Books()
	err := do(x.addr, make([]byte, x.n))
	if (x.at == 0) != (err == nil) || err != nil && !errors.Is(err, ErrUnmapped) {
		t.Errorf("%+v: %v", x, err)
	}
	after := d.Books()
	if x.at == 0 {
		if moved := after.Read + after.Written - before.Read - before.Written; moved != uint64(x.n) || after.Refused != before.Refused {
			t.Errorf("%+v: %d bytes moved, %d refused", x, moved, after.Refused-before.Refused)
		}
	} else if last := after.LastRefused[len(after.LastRefused)-1]; after.Refused != before.Refused+1 || last != (Refusal{x.at, x.n, x.write}) {
		t.Errorf("%+v: the books say %+v", x, last)
	}
}

// TestFileIsMappedOnce checks that a file is mapped once, even for another descriptor, and only while the client is
// connected.
func TestFileIsMappedOnce(t *testing.T) {
	d := serve(t)
	c := d.ready(t)
	fd := memfd(t, "once", 64*page)
	other, err := unix.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 32 {
		works(t, "map", c.Map(uint64(2*i)*page, page, uint64(i)*page, both, fd), nil)
		works(t, "map", c.Map(uint64(2*i+1)*page, page, uint64(63-i)*page, both, other), nil)
	}
	unix.Close(other)
	if n := mappings(t, "once"); n != 1 {
		t.Errorf("the file is mapped %d times", n)
	}
	c.Close()
	eventually(t, "the file is unmapped", func() bool { return mappings(t, "once") == 0 })
}

// TestBounds checks the bounds of the tables.
func TestBounds(t *testing.T) {
	d := serve(t)
	c := d.ready(t)
	for range maxMapped {
		works(t, "map", c.Map(0, page, 0, both, memfd(t, "many", page)), nil) // unmapped at once, so that the file may be removed
		c.Unmap(0, page, 0)
	}
	for i := range maxMapped {
		works(t, "map", c.Map(uint64(i)*page, page, 0, both, memfd(t, "many", page)), nil)
	}
	fails(t, "one file more", c.Map(1<<40, page, 0, both, memfd(t, "many", page)), unix.ENOSPC)
	if n := mappings(t, "many"); n != maxMapped {
		t.Errorf("%d files are mapped", n)
	}
	c.Unmap(0, 0, 2)
	for i := range uint64(maxRanges) {
		if errno := d.memory.mapRange(mapRequest{addr: i * page, size: page}, -1); errno != 0 {
			t.Fatalf("range %d: %v", i, errno)
		}
	}
	fails(t, "one range more", c.Map(1<<40, page, 0, both, -1), unix.ENOSPC)
	if b := d.Books(); b.Mapped != maxRanges {
		t.Errorf("%d ranges are mapped", b.Mapped)
	}
}

func TestReadOnlyFile(t *testing.T) {
	d := serve(t)
	c := d.ready(t)
	path := t.TempDir() + "/file"
	if err := os.WriteFile(path, bytes.Repeat([]byte{7}, page), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fails(t, "writable", c.Map(0, page, 0, both, int(f.Fd())), unix.EACCES)
	works(t, "readable", c.Map(0, page, 0, 1, int(f.Fd())), nil)
	p := make([]byte, 1)
	if err := d.memory.Read(0, p); err != nil || p[0] != 7 {
		t.Error(err, p)
	}
	if err := d.memory.Write(0, p); !errors.Is(err, ErrUnmapped) {
		t.Error(err)
	}
}

// TestFileIsCut checks that a client that truncates its file harms only itself.
func TestFileIsCut(t *testing.T) {
	d := serve(t)
	c := d.ready(t)
	fd := memfd(t, "cut", 4*page)
	works(t, "map", c.Map(0, 4*page, 0, both, fd), nil)
	if err := unix.Ftruncate(fd, page); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 2*page)
	if err := d.memory.Read(page, p); !errors.Is(err, ErrUnmapped) {
		t.Errorf("read: %v", err)
	}
	if err := d.memory.Write(page, p); !errors.Is(err, ErrUnmapped) {
		t.Errorf("write: %v", err)
	}
	if err := d.memory.Read(0, p[:page]); err != nil {
		t.Error(err)
	}
}

// TestUnmapWaits checks that no access is in progress, and none begins, once an unmapping is answered.
func TestUnmapWaits(t *testing.T) {
	d := serve(t)
	c := d.ready(t)
	const size = 1024 * page // makes a write take a while
	ram, zero := c.NewRAM(2*size), make([]byte, size)
	var done atomic.Int64
	stop := make(chan struct{})
	var engines sync.WaitGroup
	for i := range 2 {
		engines.Go(func() {
			p := bytes.Repeat([]byte{byte(i + 1)}, size)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if d.memory.Write(0x10000, p) == nil {
					done.Add(1)
				} else {
					time.Sleep(10 * time.Microsecond)
				}
			}
		})
	}
	defer engines.Wait()
	defer close(stop)
	for round := range 30 {
		works(t, "map", c.Map(0x10000, size, 0, both, ram.FD), nil)
		for was := done.Load(); done.Load() == was; {
			time.Sleep(10 * time.Microsecond)
		}
		works(t, "unmap", c.Unmap(0x10000, size, 0), vt.Cat(uint32(24), no, uint64(0x10000), uint64(size)))
		clear(ram.Bytes[:size]) // the memory no longer belongs to the device
		time.Sleep(time.Duration(rand.IntN(100)) * time.Microsecond)
		if !bytes.Equal(ram.Bytes[:size], zero) {
			t.Fatalf("round %d: the memory was written after the unmapping was answered", round)
		}
	}
}

func BenchmarkMapUnmap(b *testing.B) {
	var m Memory
	fd := memfd(b, "ram", 1<<30)
	for i := range uint64(4096) {
		m.mapRange(mapRequest{flags: both, offset: i * page, addr: 2 * i * page, size: page}, fd)
	}
	b.ReportAllocs()
	for i := uint64(0); b.Loop(); i++ {
		addr := (2*(i%4096) + 1) * page
		if m.mapRange(mapRequest{flags: both, offset: i % 4096 * page, addr: addr, size: page}, fd) != 0 || m.remove(unmapRequest{addr: addr, size: page}) != 0 {
			b.Fatal("map and unmap")
		}
	}
}

func BenchmarkAccess(b *testing.B) {
	for _, n := range []int{4, page, 64 << 10} {
		b.Run(sizeName(n), func(b *testing.B) {
			m := Memory{master: true}
			fd := memfd(b, "ram", 64<<20)
			for i := range uint64(16384) {
				m.mapRange(mapRequest{flags: both, offset: i * page, addr: i * page, size: page}, fd)
			}
			p := make([]byte, n)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for i := uint64(0); b.Loop(); i++ {
				if err := m.Read(i%16000*page, p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
