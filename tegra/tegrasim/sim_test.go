package tegrasim

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"tegracast/tegra"
)

var _ tegra.Pinner = (*Sim)(nil)

// memory maps pages and returns them with their address.
func memory(t *testing.T, pages int) ([]byte, uintptr) {
	t.Helper()
	b, err := unix.Mmap(-1, 0, pages*tegra.PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return b, uintptr(unsafe.Pointer(&b[0]))
}

func newSim(t *testing.T, cfg Config) *Sim {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, tegra.ErrClosed) {
			t.Error(err)
		}
	})
	return s
}

func pin(t *testing.T, s *Sim, addr uintptr, pages int, dir tegra.Direction) *tegra.Pin {
	t.Helper()
	p, err := s.Pin(addr, pages*tegra.PageSize, dir, tegra.WriteBack)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

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

// Every byte goes where the segment list says.
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
	if q.Segments[0].IOVA == iova {
		t.Error("the bus address was reused at once")
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

func TestPinErrors(t *testing.T) {
	_, addr := memory(t, 4)
	hole, holeAddr := memory(t, 2)
	if err := unix.Mprotect(hole[tegra.PageSize:], unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	wc := func(a uintptr) (tegra.CacheAttr, bool) { return tegra.WriteCombined, a == addr+tegra.PageSize }
	s := newSim(t, Config{Attr: wc})
	p := pin(t, s, addr, 1, tegra.FromDevice)
	for name, c := range map[string]struct {
		addr uintptr
		size int
		dir  tegra.Direction
		want error
	}{
		"alignment":       {addr + 8, 4096, tegra.ToDevice, tegra.ErrAlignment},
		"overlap":         {addr, 4096, tegra.FromDevice, tegra.ErrOverlap},
		"other direction": {addr, 8192, tegra.ToDevice, tegra.ErrOverlap},
		"attribute":       {addr + tegra.PageSize, 4096, tegra.ToDevice, tegra.ErrCacheAttr},
		"unmapped":        {4096, 4096, tegra.ToDevice, tegra.ErrRange},
		"read-only tail":  {holeAddr, 8192, tegra.FromDevice, tegra.ErrRange},
	} {
		if _, err := s.Pin(c.addr, c.size, c.dir, tegra.WriteBack); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	q := pin(t, s, holeAddr, 2, tegra.ToDevice) // the device only reads: allowed
	_ = q.Unpin()
	_ = p.Unpin()
}

func TestInvalidate(t *testing.T) {
	_, addr := memory(t, 8)
	s := newSim(t, Config{Seed: 5})
	a := pin(t, s, addr, 2, tegra.FromDevice)
	b := pin(t, s, addr+4*tegra.PageSize, 2, tegra.FromDevice)
	var reasons []tegra.Reason
	a.OnFree(func(r tegra.Reason) {
		reasons = append(reasons, r)
		if err := s.Write(a.Segments[0].IOVA, []byte{1}); !errors.Is(err, ErrFault) {
			t.Errorf("the device still writes in the callback: %v", err)
		}
	})
	s.Invalidate(addr+2*tegra.PageSize, 2*tegra.PageSize) // between them
	if _, fenced := s.Fenced(); fenced {
		t.Error("fenced though nothing was revoked")
	}
	s.Invalidate(addr+tegra.PageSize, tegra.PageSize)
	<-a.Revoked()
	if len(reasons) != 1 || reasons[0] != tegra.ReasonInvalidate {
		t.Errorf("callbacks %v", reasons)
	}
	if err := s.Write(b.Segments[0].IOVA, []byte{1}); err != nil {
		t.Errorf("another pin was hurt: %v", err)
	}
	if _, err := s.Pin(addr, 4096, tegra.FromDevice, tegra.WriteBack); !errors.Is(err, tegra.ErrFenced) {
		t.Errorf("pin while fenced: %v", err)
	}
	if err := a.Unpin(); !errors.Is(err, tegra.ErrRevoked) {
		t.Errorf("unpin: %v", err)
	}
	generation, fenced := s.Fenced()
	if !fenced {
		t.Fatal("not fenced")
	}
	if err := s.Resume(generation - 1); !errors.Is(err, tegra.ErrGeneration) {
		t.Errorf("resume with an old generation: %v", err)
	}
	if err := s.Resume(generation); err != nil {
		t.Fatal(err)
	}
	c := pin(t, s, addr, 2, tegra.FromDevice) // the same memory again
	for _, p := range []*tegra.Pin{b, c} {
		if err := p.Unpin(); err != nil {
			t.Error(err)
		}
	}
}

// While the device writes without a pause, memory is pinned, revoked and given back: no write is seen afterwards.
func TestRevokeInFlight(t *testing.T) {
	const pages = 64
	b, addr := memory(t, pages)
	s := newSim(t, Config{Contiguous: true})
	var iova atomic.Uint64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			p := bytes.Repeat([]byte{byte(i + 1)}, pages*tegra.PageSize/2)
			for {
				select {
				case <-stop:
					return
				default:
					_ = s.Write(iova.Load()+uint64(i*len(p)), p)
				}
			}
		})
	}
	for range 50 {
		p := pin(t, s, addr, pages, tegra.FromDevice)
		iova.Store(p.Segments[0].IOVA)
		s.Invalidate(addr, 1)
		clear(b) // the owner has its memory back
		for _, off := range []int{0, len(b) / 2, len(b) - 1} {
			if b[off] != 0 {
				t.Fatal("the device wrote after the revocation")
			}
		}
		if err := p.Unpin(); !errors.Is(err, tegra.ErrRevoked) {
			t.Fatal(err)
		}
		generation, _ := s.Fenced()
		if err := s.Resume(generation); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
}

func TestUnpinRacesInvalidate(t *testing.T) {
	_, addr := memory(t, 1)
	s := newSim(t, Config{})
	for range 200 {
		p := pin(t, s, addr, 1, tegra.FromDevice)
		var callbacks atomic.Int32
		p.OnFree(func(tegra.Reason) { callbacks.Add(1) })
		var wg sync.WaitGroup
		wg.Go(func() { _ = p.Unpin() })
		wg.Go(func() {
			s.Invalidate(addr, 1)
			if s.Write(p.Segments[0].IOVA, []byte{1}) == nil {
				t.Error("mapped after Invalidate")
			}
		})
		wg.Wait()
		if n := callbacks.Load(); n != 1 {
			t.Fatalf("%d callbacks", n)
		}
		generation, _ := s.Fenced()
		_ = s.Resume(generation)
	}
}

func TestCoherent(t *testing.T) {
	s := newSim(t, Config{Seed: 1, MaxSegment: tegra.PageSize})
	c, err := s.AllocCoherent(3*tegra.PageSize + 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Bytes) != 4*tegra.PageSize || len(c.Segments) != 1 || c.Segments[0].Len != len(c.Bytes) {
		t.Fatalf("%d bytes in %v", len(c.Bytes), c.Segments)
	}
	iova := c.Segments[0].IOVA
	for _, n := range []int{1, 4, 8, 31} { // 4 and 8 go as one store
		p := make([]byte, n)
		for i := range p {
			p[i] = byte(rand.N(255) + 1)
		}
		if err := s.Write(iova+64, p); err != nil || !bytes.Equal(c.Bytes[64:64+n], p) {
			t.Errorf("write of %d: %v", n, err)
		}
		got := make([]byte, n)
		if err := s.Read(iova+64, got); err != nil || !bytes.Equal(got, p) {
			t.Errorf("read of %d: %v", n, err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(iova, []byte{1}); !errors.Is(err, ErrFault) {
		t.Errorf("write after close: %v", err)
	}
	for _, n := range []int{0, -1, tegra.MaxPinSize + 1} {
		if _, err := s.AllocCoherent(n); !errors.Is(err, tegra.ErrSize) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestCloseNamesLeaks(t *testing.T) {
	_, addr := memory(t, 1)
	s := newSim(t, Config{})
	p := pin(t, s, addr, 1, tegra.FromDevice)
	c, err := s.AllocCoherent(100)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Close()
	for _, want := range []string{
		fmt.Sprintf("pin of 4096 bytes at %#x", addr), "coherent memory of 4096 bytes", "TestCloseNamesLeaks",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error does not say %q: %v", want, err)
		}
	}
	<-p.Revoked()
	if err := s.Write(c.Segments[0].IOVA, []byte{1}); !errors.Is(err, ErrFault) {
		t.Errorf("write after close: %v", err)
	}
	c.Bytes[0] = 1 // still the holder's
	if err := errors.Join(p.Unpin(), c.Close()); !errors.Is(err, tegra.ErrRevoked) {
		t.Error(err)
	}
	if _, err := s.Pin(addr, 4096, tegra.ToDevice, tegra.WriteBack); !errors.Is(err, tegra.ErrClosed) {
		t.Error(err)
	}
	if _, err := s.AllocCoherent(1); !errors.Is(err, tegra.ErrClosed) {
		t.Error(err)
	}
}

func BenchmarkWrite(b *testing.B) {
	s, err := New(Config{Seed: 1})
	if err != nil {
		b.Fatal(err)
	}
	mem, err := unix.Mmap(-1, 0, 4<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		b.Fatal(err)
	}
	p, err := s.Pin(uintptr(unsafe.Pointer(&mem[0])), len(mem), tegra.FromDevice, tegra.WriteBack)
	if err != nil {
		b.Fatal(err)
	}
	frame := make([]byte, len(mem))
	b.ReportAllocs()
	b.SetBytes(int64(len(mem)))
	for b.Loop() {
		off := 0
		for _, seg := range p.Segments {
			if err := s.Write(seg.IOVA, frame[off:off+seg.Len]); err != nil {
				b.Fatal(err)
			}
			off += seg.Len
		}
	}
}
