// SPDX-License-Identifier: Apache-2.0

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

	"github.com/tegracast/tegracast/tegra"
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
	resume(t, s)
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, tegra.ErrClosed) {
			t.Error(err)
		}
	})
	return s
}

// resume lifts the initial fence of a new Sim.
func resume(t *testing.T, s *Sim) {
	t.Helper()
	generation, fenced := s.Fenced()
	if !fenced {
		t.Error("not fenced")
	}
	if err := s.Resume(generation); err != nil {
		t.Fatal(err)
	}
}

func pin(t *testing.T, s *Sim, addr uintptr, pages int, dir tegra.Direction) *tegra.Pin {
	t.Helper()
	p, err := s.Pin(addr, pages*tegra.PageSize, dir, tegra.WriteBack)
	if err != nil {
		t.Fatal(err)
	}
	return p
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
	q := pin(t, s, holeAddr+tegra.PageSize, 1, tegra.ToDevice) // the device only reads, which is allowed
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

// While the device writes without pause, memory is pinned, revoked and given back. No write may be visible afterwards.
func TestRevokeInFlight(t *testing.T) {
	const pages = 64
	b, addr := memory(t, pages)
	s := newSim(t, Config{Contiguous: true})
	s.ExpectFaults(func(Fault) bool { return true }) // the device never pauses
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
		resume(t, s)
	}
	close(stop)
	wg.Wait()
}

func TestUnpinRacesInvalidate(t *testing.T) {
	_, addr := memory(t, 1)
	s := newSim(t, Config{})
	s.ExpectFaults(func(Fault) bool { return true }) // for an unpin that was faster
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
	for _, n := range []int{1, 4, 8, 31} { // 4 and 8 are written as one store
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
	s.ExpectFaults(func(f Fault) bool { return f.IOVA == iova })
	if err := s.Write(iova, []byte{1}); !errors.Is(err, ErrFault) {
		t.Errorf("write after close: %v", err)
	}
	for _, n := range []int{0, -1, tegra.MaxCoherentSize + 1} {
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
	c.Bytes[0] = 1 // it still belongs to the holder
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
