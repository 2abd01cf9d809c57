// SPDX-License-Identifier: Apache-2.0

package tegrasim

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/tegra"
)

func checkSegments(t *testing.T, segments []tegra.Segment, size, largest int) {
	t.Helper()
	sum := 0
	for i, a := range segments {
		sum += a.Len
		if a.Len <= 0 || a.Len > largest || a.Len%tegra.PageSize != 0 || a.IOVA%tegra.PageSize != 0 {
			t.Errorf("segment %d: %#x, %d bytes", i, a.IOVA, a.Len)
		}
		for _, b := range segments[:i] {
			if a.IOVA <= b.IOVA+uint64(b.Len) && b.IOVA <= a.IOVA+uint64(a.Len) {
				t.Errorf("segments %#x and %#x touch", a.IOVA, b.IOVA)
			}
		}
	}
	if sum != size {
		t.Errorf("segments sum up to %d bytes, want %d", sum, size)
	}
}

func TestSegments(t *testing.T) {
	const pages = 300
	_, addr := memory(t, pages)
	for _, c := range []struct {
		cfg      Config
		largest  int
		min, max int // number of segments
	}{
		{Config{Seed: 1}, DefaultMaxSegment, 25, 60},
		{Config{Seed: 1, MaxSegment: tegra.PageSize}, tegra.PageSize, pages, pages},
		{Config{Seed: 2, MaxSegment: 4 * tegra.PageSize, MeanSegment: 2 * tegra.PageSize}, 4 * tegra.PageSize, 100, 250},
		{Config{Contiguous: true}, pages * tegra.PageSize, 1, 1},
	} {
		s := newSim(t, c.cfg)
		p := pin(t, s, addr, pages, tegra.FromDevice)
		checkSegments(t, p.Segments, pages*tegra.PageSize, c.largest)
		if n := len(p.Segments); n < c.min || n > c.max {
			t.Errorf("%+v: %d segments, want %d to %d", c.cfg, n, c.min, c.max)
		}
		again := newSim(t, c.cfg)
		q := pin(t, again, addr, pages, tegra.FromDevice)
		if fmt.Sprint(p.Segments) != fmt.Sprint(q.Segments) {
			t.Errorf("%+v: the same seed gives other segments", c.cfg)
		}
		_ = p.Unpin()
		_ = q.Unpin()
	}
}

func TestNewErrors(t *testing.T) {
	for _, cfg := range []Config{
		{MaxSegment: 100},
		{MaxSegment: -4096},
		{MeanSegment: 2 << 30},
		{MaxSegment: tegra.PageSize, MeanSegment: 2 * tegra.PageSize},
	} {
		if s, err := New(cfg); err == nil {
			t.Errorf("%+v: no error, %v", cfg, s)
		}
	}
}

// Every byte must go where the segment list says.
func TestReadWrite(t *testing.T) {
	const pages = 64
	b, addr := memory(t, pages)
	s := newSim(t, Config{Seed: 3, MaxSegment: 3 * tegra.PageSize})
	want := make([]byte, len(b))
	for i := range want {
		want[i] = byte(i*7 + i>>9)
	}
	p := pin(t, s, addr, pages, tegra.FromDevice)
	off := 0
	for _, seg := range p.Segments {
		if err := s.Write(seg.IOVA, want[off:off+seg.Len]); err != nil {
			t.Fatal(err)
		}
		off += seg.Len
	}
	if !bytes.Equal(b, want) {
		t.Error("written memory differs")
	}
	if err := p.Unpin(); err != nil {
		t.Fatal(err)
	}
	p = pin(t, s, addr, pages, tegra.ToDevice)
	got := make([]byte, 5)
	if err := s.Read(p.Segments[1].IOVA+3, got); err != nil || !bytes.Equal(got, want[p.Segments[0].Len+3:][:5]) {
		t.Errorf("read %v, %v", got, err)
	}
	_ = p.Unpin()
	if faults, n := s.Faults(); n != 0 {
		t.Errorf("faults %v", faults)
	}
}

func TestFaults(t *testing.T) {
	b, addr := memory(t, 4)
	s := newSim(t, Config{Contiguous: true})
	s.ExpectFaults(func(Fault) bool { return true })
	p := pin(t, s, addr, 4, tegra.FromDevice)
	iova, size := p.Segments[0].IOVA, uint64(p.Segments[0].Len)
	coherent, err := s.AllocCoherent(1)
	if err != nil {
		t.Fatal(err)
	}
	ones := bytes.Repeat([]byte{0xff}, 64)
	for _, c := range []struct {
		name  string
		iova  uint64
		n     int
		write bool
		says  string
	}{
		{"below", iova - 1, 1, true, "no mapping"},
		{"above", iova + size, 8, true, "no mapping"},
		{"over the end", iova + size - 32, 64, true, "runs 32 bytes beyond"},
		{"read of a from-device pin", iova, 4, false, "for writing"},
		{"zero page", 0, 4, true, "no mapping"},
		{"top of the address space", ^uint64(0) - 3, 64, true, "no mapping"},
		{"over the end of coherent memory", coherent.Segments[0].IOVA + 4095, 2, false, "runs 1 bytes"},
	} {
		access := s.Read
		if c.write {
			access = s.Write
		}
		_, before := s.Faults()
		err := access(c.iova, bytes.Clone(ones[:c.n]))
		faults, after := s.Faults()
		if !errors.Is(err, ErrFault) || !strings.Contains(err.Error(), c.says) || after != before+1 {
			t.Errorf("%s: %v, %d faults more", c.name, err, after-before)
			continue
		}
		f := faults[len(faults)-1]
		if f.IOVA != c.iova || f.Len != c.n || f.Write != c.write {
			t.Errorf("%s: recorded %v", c.name, f)
		}
	}
	if bytes.Contains(b, []byte{0xff}) {
		t.Error("a refused write has touched memory")
	}
	_ = p.Unpin()
	if err := s.Write(iova, ones); !errors.Is(err, ErrFault) {
		t.Errorf("write after unpin: %v", err)
	}
	q := pin(t, s, addr, 4, tegra.ToDevice)
	if q.Segments[0].IOVA != iova {
		t.Error("the bus address that was freed last is not given out again at once")
	}
	if err := s.Write(q.Segments[0].IOVA, ones); !errors.Is(err, ErrFault) {
		t.Errorf("write to a to-device pin: %v", err)
	}
	_ = q.Unpin()
	_ = coherent.Close()
	for range 2 * maxFaults {
		_ = s.Write(1, ones)
	}
	if list, n := s.Faults(); len(list) != maxFaults || n < 2*maxFaults {
		t.Errorf("%d faults kept of %d", len(list), n)
	}
}

// TestAFaultThatNobodyExpectsFailsClose checks that the owner of a Sim cannot overlook accesses that its SMMU has
// rejected.
func TestAFaultThatNobodyExpectsFailsClose(t *testing.T) {
	for name, c := range map[string]struct {
		do    func(s *Sim, addr uintptr)
		fails bool
	}{
		"nothing was pinned there": {func(s *Sim, _ uintptr) { _ = s.Write(0x1000, []byte{1}) }, true},
		"it was unpinned": {func(s *Sim, addr uintptr) {
			p, _ := s.Pin(addr, tegra.PageSize, tegra.FromDevice, tegra.WriteBack)
			_ = p.Unpin()
			_ = s.Write(p.Segments[0].IOVA, []byte{1})
		}, true},
		"it was revoked": {func(s *Sim, addr uintptr) { _ = s.Write(revoked(s, addr), []byte{1}) }, false},
		"it was revoked, and the fence is down again": {func(s *Sim, addr uintptr) {
			iova := revoked(s, addr)
			generation, _ := s.Fenced()
			_ = s.Resume(generation)
			_ = s.Write(iova, []byte{1})
		}, true},
		"it is expected": {func(s *Sim, _ uintptr) {
			s.ExpectFaults(func(f Fault) bool { return f.IOVA == 0x1000 })
			_ = s.Write(0x1000, []byte{1})
		}, false},
		"another one is expected": {func(s *Sim, _ uintptr) {
			s.ExpectFaults(func(f Fault) bool { return f.IOVA == 0x2000 })
			_ = s.Write(0x1000, []byte{1})
		}, true},
	} {
		s, err := New(Config{Contiguous: true})
		if err != nil {
			t.Fatal(err)
		}
		resume(t, s)
		_, addr := memory(t, 1)
		c.do(s, addr)
		if err := s.Close(); (err != nil) != c.fails || err != nil && !errors.Is(err, ErrFault) {
			t.Errorf("%s: close says %v", name, err)
		}
	}
}

// revoked pins memory, revokes the pin, and returns its bus address.
func revoked(s *Sim, addr uintptr) uint64 {
	p, _ := s.Pin(addr, tegra.PageSize, tegra.FromDevice, tegra.WriteBack)
	s.Invalidate(addr, 1)
	_ = p.Unpin()
	return p.Segments[0].IOVA
}

// TestAStaleAddressIsSomebodyElses checks that an engine that continues after its pin was unpinned writes to memory
// pinned later.
func TestAStaleAddressIsSomebodyElses(t *testing.T) {
	b, addr := memory(t, 16)
	s := newSim(t, Config{Seed: 3})
	stale := pin(t, s, addr, 8, tegra.FromDevice)
	if err := stale.Unpin(); err != nil {
		t.Fatal(err)
	}
	other := pin(t, s, addr+8*tegra.PageSize, 8, tegra.FromDevice)
	for _, seg := range stale.Segments {
		_ = s.Write(seg.IOVA, bytes.Repeat([]byte{0xee}, 64))
	}
	if !bytes.Contains(b[8*tegra.PageSize:], []byte{0xee}) {
		t.Error("no stale address leads to the memory that was pinned next")
	}
	if bytes.Contains(b[:8*tegra.PageSize], []byte{0xee}) {
		t.Error("a stale address leads to memory that was unpinned")
	}
	s.ExpectFaults(func(Fault) bool { return true })
	_ = other.Unpin()
}

// TestSpacesStayFew checks that ranges of many sizes that are taken and returned do not accumulate.
func TestSpacesStayFew(t *testing.T) {
	s := spaces{next: firstIOVA}
	rng := rand.New(rand.NewPCG(1, 2))
	var held []space
	for range 100_000 {
		if len(held) > 0 && rng.IntN(2) == 0 {
			i := rng.IntN(len(held))
			s.release(held[i])
			held[i] = held[len(held)-1]
			held = held[:len(held)-1]
			continue
		}
		r := s.allocate((1+rng.IntN(64))*tegra.PageSize, tegra.PageSize)
		for _, o := range held {
			if r.iova < o.iova+o.size && o.iova < r.iova+r.size {
				t.Fatalf("%+v and %+v overlap", r, o)
			}
		}
		held = append(held, r)
	}
	if len(s.free) > maxFree {
		t.Errorf("%d free ranges", len(s.free))
	}
}
