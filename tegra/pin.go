// SPDX-License-Identifier: Apache-2.0

package tegra

import (
	"fmt"
	"math"
	"sync"
)

// A Reason is the reason why the memory of a pin was taken away from the device.
type Reason int

const (
	ReasonUnpin      Reason = 1 + iota // Unpin was called
	ReasonInvalidate                   // the memory was freed, remapped or protected
	ReasonExit                         // the process that owned the memory has ended
	ReasonUnplug                       // the device has gone or was closed

	// ReasonLink and the reasons after it mean that the function has lost its state or its protection, and was stopped.
	// The function is restarted as after any other revocation.
	ReasonLink    // its link has reported an error
	ReasonFatal   // the error was fatal, and the bus was reset
	ReasonReset   // somebody has reset the function
	ReasonSuspend // the machine was suspended
	ReasonExposed // another function has joined its IOMMU group
)

func (r Reason) String() string {
	switch r {
	case ReasonUnpin:
		return "unpinned"
	case ReasonInvalidate:
		return "memory freed"
	case ReasonExit:
		return "process ended"
	case ReasonUnplug:
		return "device gone"
	case ReasonLink:
		return "link error"
	case ReasonFatal:
		return "fatal link error"
	case ReasonReset:
		return "function reset"
	case ReasonSuspend:
		return "machine suspended"
	case ReasonExposed:
		return "another function joined its IOMMU group"
	}
	return fmt.Sprintf("Reason(%d)", int(r))
}

// A Request holds the arguments of Pinner.Pin.
type Request struct {
	Addr      uintptr // virtual address, a multiple of PageSize
	Size      int     // bytes, a multiple of PageSize up to MaxPinSize
	Direction Direction
	Attr      CacheAttr
}

// Check checks r against the rules common to all back ends (GPUDirect RDMA 12.9 §13.4.3: base and length are multiples
// of 4 KiB, which the provider itself does not enforce).
func (r Request) Check() error {
	switch {
	case r.Direction != ToDevice && r.Direction != FromDevice:
		return fmt.Errorf("pin %#x: %w: %d (want to-device or from-device)", r.Addr, ErrDirection, int(r.Direction))
	case r.Attr != WriteBack && r.Attr != WriteCombined:
		return fmt.Errorf("pin %#x: %w: %d is neither write-back nor write-combined", r.Addr, ErrCacheAttr, int(r.Attr))
	case r.Addr == 0:
		return fmt.Errorf("pin: %w: address is nil", ErrRange)
	case r.Addr%PageSize != 0:
		return fmt.Errorf("pin: address %#x is %w: it lies %d bytes above a page; allocate page-aligned memory",
			r.Addr, ErrAlignment, r.Addr%PageSize)
	case r.Size <= 0 || r.Size > MaxPinSize:
		return fmt.Errorf("pin %#x: %w: %d bytes (want %d to %d)", r.Addr, ErrSize, r.Size, PageSize, MaxPinSize)
	case r.Size%PageSize != 0:
		return fmt.Errorf("pin %#x: size %d is %w: round it up to %d",
			r.Addr, r.Size, ErrAlignment, (r.Size+PageSize-1)&^(PageSize-1))
	case uint64(r.Addr) > math.MaxUint64-uint64(r.Size):
		return fmt.Errorf("pin %#x: %w: %d bytes go beyond the address space", r.Addr, ErrRange, r.Size)
	}
	return nil
}

// A Mapping is a back end's part of a pin.
type Mapping interface {
	// Unmap takes the memory away from the device. When it returns, no access is in flight and none can begin. Unpin
	// calls it once, unless the memory was revoked.
	Unmap() error
	// Release frees the rest of the pin. It is called once, at the end.
	Release() error
}

// A Pin is memory that the device can access. It belongs to its creator and must be ended with Unpin, even after the
// memory has been revoked. Its methods may be called concurrently.
type Pin struct {
	Request
	Segments []Segment // bus addresses in the order of the memory; their lengths add up to Size

	mapping Mapping
	revoked chan struct{} // closed after the free callbacks have run because of a revocation
	freed   chan struct{} // closed after the free callbacks have run, by Unpin or because of a revocation

	mu       sync.Mutex
	reason   Reason // set by whoever ends the pin; 0 while it exists
	unpinned bool   // Unpin was called
	ran      bool   // free callbacks have been called
	onFree   []func(Reason)
}

// NewPin returns the Pin of a back end. After the back end has taken the memory away from the device on its own, it
// must call revoke, which runs the free callbacks and returns when they have ended. If Unpin was faster, revoke only
// waits until the callbacks run by Unpin have ended.
func NewPin(r Request, segments []Segment, m Mapping) (pin *Pin, revoke func(Reason)) {
	pin = &Pin{
		Request: r, Segments: segments, mapping: m,
		revoked: make(chan struct{}), freed: make(chan struct{}),
	}
	return pin, pin.revoke
}

// OnFree registers f as a free callback (GPUDirect RDMA 12.9 §11.3, §13.4.3). f runs exactly once, after the device has
// lost access to the memory and before Unpin, or the release of the memory that revoked the pin, returns. If the
// callbacks of the pin have already begun to run, f runs before OnFree returns. f must not call Unpin of the same pin:
// it would wait for itself.
func (p *Pin) OnFree(f func(Reason)) {
	p.mu.Lock()
	if !p.ran {
		p.onFree = append(p.onFree, f)
		p.mu.Unlock()
		return
	}
	reason := p.reason
	p.mu.Unlock()
	f(reason)
}

// Revoked returns a channel that is closed after the memory has been taken away other than by Unpin, and the free
// callbacks have run.
func (p *Pin) Revoked() <-chan struct{} { return p.revoked }

// Unpin takes the memory away from the device, runs the free callbacks and releases the pin. After a revocation it
// waits until the free callbacks have run, releases the pin, and returns an error that wraps ErrRevoked. The error of a
// second Unpin wraps ErrUnpinned.
func (p *Pin) Unpin() error {
	p.mu.Lock()
	if p.unpinned {
		p.mu.Unlock()
		return fmt.Errorf("unpin %#x: %w", p.Addr, ErrUnpinned)
	}
	p.unpinned = true
	p.mu.Unlock()

	var err error
	if p.claim(ReasonUnpin) {
		err = p.mapping.Unmap()
		p.runCallbacks()
		close(p.freed)
	} else {
		<-p.freed // ends: callbacks do not wait
		err = fmt.Errorf("unpin %#x (%s): %w", p.Addr, p.reason, ErrRevoked)
	}
	if rerr := p.mapping.Release(); rerr != nil {
		return fmt.Errorf("unpin %#x: %w", p.Addr, rerr)
	}
	return err
}

func (p *Pin) revoke(reason Reason) {
	if !p.claim(reason) {
		<-p.freed // ends: callbacks do not wait
		return
	}
	p.runCallbacks()
	close(p.revoked)
	close(p.freed)
}

// claim makes the caller the one that ends the pin, for the given reason. It returns false if another caller was
// faster.
func (p *Pin) claim(reason Reason) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reason != 0 {
		return false
	}
	p.reason = reason
	return true
}

func (p *Pin) runCallbacks() {
	p.mu.Lock()
	p.ran = true
	callbacks := p.onFree
	p.onFree = nil
	p.mu.Unlock()
	for _, f := range callbacks {
		f(p.reason)
	}
}
