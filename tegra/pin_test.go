// SPDX-License-Identifier: Apache-2.0

package tegra

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

func TestRequestCheck(t *testing.T) {
	good := Request{Addr: 0x10000, Size: 2 * PageSize, Direction: FromDevice}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Request)
		want   error
		says   string
	}{
		"direction":   {func(r *Request) { r.Direction = 0 }, ErrDirection, "0"},
		"attribute":   {func(r *Request) { r.Attr = 7 }, ErrCacheAttr, "7"},
		"nil":         {func(r *Request) { r.Addr = 0 }, ErrRange, "nil"},
		"base":        {func(r *Request) { r.Addr += 64 }, ErrAlignment, "0x10040"},
		"zero":        {func(r *Request) { r.Size = 0 }, ErrSize, "0 bytes"},
		"negative":    {func(r *Request) { r.Size = -4096 }, ErrSize, "-4096"},
		"too large":   {func(r *Request) { r.Size = MaxPinSize + PageSize }, ErrSize, "1073745920"},
		"length":      {func(r *Request) { r.Size = 5000 }, ErrAlignment, "round it up to 8192"},
		"wrap":        {func(r *Request) { r.Addr = ^uintptr(0) &^ (PageSize - 1) }, ErrRange, "address space"},
		"64 KiB rule": {func(r *Request) { r.Addr = 0x11000; r.Size = PageSize }, nil, ""}, // that of the desktop does not apply
		"largest":     {func(r *Request) { r.Size = MaxPinSize }, nil, ""},
	} {
		r := good
		c.change(&r)
		err := r.Check()
		if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v, want %v that says %q", name, err, c.want, c.says)
		}
	}
}

// backEnd is a Mapping that records the order of what happens.
type backEnd struct {
	mu  sync.Mutex
	log []string
}

func (b *backEnd) add(s string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, s)
}
func (b *backEnd) Unmap() error   { b.add("unmap"); return nil }
func (b *backEnd) Release() error { b.add("release"); return nil }

func newTestPin(b *backEnd) (*Pin, func(Reason)) {
	p, revoke := NewPin(Request{Addr: 0x10000, Size: PageSize, Direction: ToDevice}, nil, b)
	p.OnFree(func(r Reason) { b.add("callback " + r.String()) })
	return p, revoke
}

func TestUnpin(t *testing.T) {
	b := &backEnd{}
	p, revoke := newTestPin(b)
	if err := p.Unpin(); err != nil {
		t.Fatal(err)
	}
	if err := p.Unpin(); !errors.Is(err, ErrUnpinned) {
		t.Errorf("second unpin: %v", err)
	}
	revoke(ReasonInvalidate) // too late: nothing happens
	if got := strings.Join(b.log, ","); got != "unmap,callback unpinned,release" {
		t.Errorf("order: %s", got)
	}
	select {
	case <-p.Revoked():
		t.Error("Revoked is closed after an unpin")
	default:
	}
	var late Reason
	p.OnFree(func(r Reason) { late = r })
	if late != ReasonUnpin {
		t.Errorf("late callback got %v", late)
	}
}

func TestRevoke(t *testing.T) {
	b := &backEnd{}
	p, revoke := newTestPin(b)
	revoke(ReasonInvalidate)
	revoke(ReasonExit)
	<-p.Revoked()
	if err := p.Unpin(); !errors.Is(err, ErrRevoked) || !strings.Contains(err.Error(), "memory freed") {
		t.Errorf("unpin after revocation: %v", err)
	}
	if err := p.Unpin(); !errors.Is(err, ErrUnpinned) {
		t.Errorf("second unpin: %v", err)
	}
	if got := strings.Join(b.log, ","); got != "callback memory freed,release" {
		t.Errorf("order: %s", got)
	}
}

// An unpin that loses the race returns only after the callbacks of the revocation.
func TestUnpinWaitsForRevocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backEnd{}
		p, revoke := newTestPin(b)
		hold := make(chan struct{})
		p.OnFree(func(Reason) { <-hold })
		go revoke(ReasonInvalidate)
		synctest.Wait()
		done := make(chan error, 1)
		go func() { done <- p.Unpin() }()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("unpin returned %v while a callback runs", err)
		default:
		}
		close(hold)
		if err := <-done; !errors.Is(err, ErrRevoked) {
			t.Error(err)
		}
	})
}

// A revocation that loses the race returns only after the callbacks of the unpin: the memory may be freed then.
func TestRevokeWaitsForUnpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, revoke := newTestPin(&backEnd{})
		hold, done := make(chan struct{}), make(chan struct{})
		p.OnFree(func(Reason) { <-hold })
		go func() { _ = p.Unpin() }()
		synctest.Wait()
		go func() {
			revoke(ReasonInvalidate)
			close(done)
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Error("revoke returned while a callback runs")
		default:
		}
		close(hold)
		<-done
	})
}

func TestUnpinRacesRevoke(t *testing.T) {
	for range 200 {
		b := &backEnd{}
		p, revoke := newTestPin(b)
		var wg sync.WaitGroup
		wg.Go(func() { _ = p.Unpin() })
		wg.Go(func() { revoke(ReasonInvalidate) })
		wg.Wait()
		callbacks := strings.Count(strings.Join(b.log, ","), "callback")
		if callbacks != 1 || b.log[len(b.log)-1] != "release" {
			t.Fatalf("order: %v", b.log)
		}
	}
}

func TestCoherentClose(t *testing.T) {
	n := 0
	c := NewCoherent(make([]byte, PageSize), nil, func() error { n++; return nil })
	if err := c.Close(); err != nil || n != 1 {
		t.Fatal(err, n)
	}
	if err := c.Close(); !errors.Is(err, ErrClosed) || n != 1 {
		t.Errorf("second close: %v, released %d times", err, n)
	}
}
