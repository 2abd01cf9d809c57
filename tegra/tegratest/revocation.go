// SPDX-License-Identifier: Apache-2.0

package tegratest

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tegracast/tegracast/tegra"
)

// revoked checks a pin whose memory is changed by change, and that everything works again after the fence.
func revoked(t *testing.T, b *bench, change func(memory) error) {
	m, other := b.memory(4), b.memory(4)
	before, _ := b.f.Fenced()
	hit, spared := b.pin(m, 0, 4, tegra.FromDevice), b.pin(other, 0, 4, tegra.FromDevice)
	var callbacks atomic.Int32
	hit.OnFree(func(r tegra.Reason) {
		callbacks.Add(1)
		if r != tegra.ReasonInvalidate {
			t.Errorf("callback said %v", r)
		}
	})
	if err := change(m); err != nil {
		t.Fatal(err)
	}
	b.awaitRevoked(hit)
	if n := callbacks.Load(); n != 1 {
		t.Errorf("%d callbacks", n)
	}
	if generation, fenced := b.f.Fenced(); !fenced || generation == before {
		t.Errorf("fenced %t, generation %d after %d", fenced, generation, before)
	}
	if _, err := b.f.Pin(m.page(0), tegra.PageSize, tegra.FromDevice, tegra.WriteBack); !errors.Is(err, tegra.ErrFenced) {
		t.Errorf("pin while fenced: %v", err)
	}
	if _, err := b.f.AllocCoherent(tegra.PageSize); !errors.Is(err, tegra.ErrFenced) {
		t.Errorf("coherent memory while fenced: %v", err)
	}
	if err := hit.Unpin(); !errors.Is(err, tegra.ErrRevoked) {
		t.Errorf("unpin after the revocation: %v", err)
	}
	if err := hit.Unpin(); !errors.Is(err, tegra.ErrUnpinned) {
		t.Errorf("second unpin: %v", err)
	}
	select {
	case <-spared.Revoked():
		t.Error("another pin was revoked, too")
	default:
	}
	if err := spared.Unpin(); err != nil {
		t.Error(err)
	}
	b.resume()
	if err := b.pin(m, 0, 4, tegra.FromDevice).Unpin(); err != nil {
		t.Error(err)
	}
}

const (
	protections = 5                     // attempts: if the machine stalls while memory is protected, it is correct that the pin ends
	looked      = 20 * time.Millisecond // after this time, a back end has noticed that memory changed
)

// protected checks a pin whose memory is read-only for a moment. A back end that uses pin_user_pages keeps the pin,
// because its pages stay the same. One that uses nv-p2p, which cannot tell, or that is notified of changes, treats any
// change as the end of the pin.
func protected(t *testing.T, b *bench) {
	if b.cfg.FirstPage || b.cfg.Invalidate != nil {
		revoked(t, b, func(m memory) error { return b.mprotect(m) })
		return
	}
	for range protections {
		m := b.memory(4)
		p := b.pin(m, 0, 4, tegra.FromDevice)
		if err := b.mprotect(m); err != nil {
			t.Fatal(err)
		}
		time.Sleep(looked)
		switch err := p.Unpin(); {
		case err == nil:
			return
		case !errors.Is(err, tegra.ErrRevoked):
			t.Fatal(err)
		}
		b.resume()
	}
	t.Errorf("%d times revoked though the memory is the same", protections)
}

// fence checks that an old generation does not lift a fence, because more memory was revoked since.
func fence(t *testing.T, b *bench) {
	m := b.memory(4)
	first, _ := b.f.Fenced()
	for range 2 {
		p := b.pin(m, 0, 1, tegra.ToDevice)
		if err := b.munmap(m, 0, 1); err != nil {
			t.Fatal(err)
		}
		b.awaitRevoked(p)
		if err := p.Unpin(); !errors.Is(err, tegra.ErrRevoked) {
			t.Error(err)
		}
		if err := b.f.Resume(first); !errors.Is(err, tegra.ErrGeneration) {
			t.Errorf("resume with an old generation: %v", err)
		}
		if _, fenced := b.f.Fenced(); !fenced {
			t.Error("an old generation lifted the fence")
		}
		b.resume()
	}
}

// asksForFence checks a fence that is raised without a revocation: pins stay until they are unpinned, and nothing can
// be pinned instead.
func asksForFence(t *testing.T, b *bench) {
	m := b.memory(2)
	p := b.pin(m, 0, 1, tegra.FromDevice)
	before, _ := b.f.Fenced()
	if err := b.f.Fence(); err != nil {
		t.Fatal(err)
	}
	if generation, fenced := b.f.Fenced(); !fenced || generation == before {
		t.Errorf("fenced %t, generation %d after %d", fenced, generation, before)
	}
	select {
	case <-p.Revoked():
		t.Error("a fence revokes pins")
	default:
	}
	b.unpinned(p)
	if err := b.tryPin(m.page(1), tegra.PageSize, tegra.FromDevice); !errors.Is(err, tegra.ErrFenced) {
		t.Errorf("pin while fenced: %v", err)
	}
	b.resume()
	b.unpinned(b.pin(m, 0, 2, tegra.FromDevice))
}

// unpinAgainstMunmap ends pins by Unpin and, at the same time, by munmap of their memory.
func unpinAgainstMunmap(t *testing.T, b *bench) {
	m := b.memory(1)
	for range 100 {
		if _, fenced := b.f.Fenced(); fenced {
			b.resume()
		}
		p := b.pin(m, 0, 1, tegra.FromDevice)
		var callbacks atomic.Int32
		p.OnFree(func(tegra.Reason) { callbacks.Add(1) })
		unmapped := make(chan error, 1)
		go func() { unmapped <- b.munmap(m, 0, 1) }()
		if err := p.Unpin(); err != nil && !errors.Is(err, tegra.ErrRevoked) {
			t.Fatal(err)
		}
		if err := <-unmapped; err != nil {
			t.Fatal(err)
		}
		if n := callbacks.Load(); n != 1 {
			t.Fatalf("%d callbacks", n)
		}
	}
	if _, fenced := b.f.Fenced(); fenced {
		b.resume()
	}
}

func closeWithLeaks(t *testing.T, b *bench) {
	m := b.memory(4)
	p := b.pin(m, 0, 2, tegra.FromDevice)
	given := b.pin(m, 2, 2, tegra.FromDevice)
	c, err := b.f.AllocCoherent(tegra.PageSize)
	if err != nil {
		t.Fatal(err)
	}
	if err := given.Unpin(); err != nil {
		t.Error(err)
	}
	var why atomic.Int32
	p.OnFree(func(r tegra.Reason) { why.Store(int32(r)) })
	b.closed = true
	err = b.f.Close()
	if err == nil || strings.Count(err.Error(), "leaked") != 2 || !strings.Contains(err.Error(), "closeWithLeaks") {
		t.Errorf("close with a pin and coherent memory left says %v", err)
	}
	b.awaitRevoked(p)
	if r := tegra.Reason(why.Load()); r != tegra.ReasonUnplug {
		t.Errorf("callback said %v", r)
	}
	if err := p.Unpin(); !errors.Is(err, tegra.ErrRevoked) {
		t.Errorf("unpin after close: %v", err)
	}
	c.Bytes[len(c.Bytes)-1]++ // still mapped
	if err := c.Close(); err != nil {
		t.Errorf("closing coherent memory after close: %v", err)
	}
	afterClose(t, b.f, m)
}

func afterClose(t *testing.T, f Function, m memory) {
	_, pin := f.Pin(m.page(0), tegra.PageSize, tegra.ToDevice, tegra.WriteBack)
	_, alloc := f.AllocCoherent(tegra.PageSize)
	generation, _ := f.Fenced()
	for what, err := range map[string]error{"pin": pin, "coherent memory": alloc, "resume": f.Resume(generation), "fence": f.Fence(), "close": f.Close()} {
		if !errors.Is(err, tegra.ErrClosed) {
			t.Errorf("%s of a closed function: %v", what, err)
		}
	}
}

// unplug checks the remains of a function that has gone.
func unplug(t *testing.T, b *bench) {
	if b.cfg.Unplug == nil {
		t.Skip("NEEDS a function that can be taken away")
	}
	m := b.memory(4)
	p := b.pin(m, 0, 2, tegra.FromDevice)
	c, err := b.f.AllocCoherent(tegra.PageSize)
	if err != nil {
		t.Fatal(err)
	}
	var why atomic.Int32
	p.OnFree(func(r tegra.Reason) { why.Store(int32(r)) })
	b.cfg.Unplug(t, b.f)
	b.awaitRevoked(p)
	if r := tegra.Reason(why.Load()); r != tegra.ReasonUnplug {
		t.Errorf("callback said %v", r)
	}
	generation, fenced := b.f.Fenced()
	if !fenced {
		t.Error("a function that has gone is not fenced")
	}
	for what, err := range map[string]error{
		"pin": b.tryPin(m.page(2), tegra.PageSize, tegra.ToDevice), "coherent memory": b.tryAlloc(1), "resume": b.f.Resume(generation),
	} {
		if !errors.Is(err, tegra.ErrGone) {
			t.Errorf("%s of a function that has gone: %v", what, err)
		}
	}
	if err := p.Unpin(); !errors.Is(err, tegra.ErrRevoked) {
		t.Errorf("unpin: %v", err)
	}
	c.Bytes[0]++ // still mapped
	if err := c.Close(); err != nil {
		t.Errorf("coherent memory: %v", err)
	}
}
