// SPDX-License-Identifier: Apache-2.0

package tegra

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"syscall"
)

// regState is what can be done with a registration that is in the index.
type regState int

const (
	regPinning regState = iota // wait until it has settled
	regLive
	regInvalid // of a buffer that was freed, and still used: its last Release unpins it
	regDying   // being unpinned: wait until it has settled
	regGone    // not in the index
)

// A Registration is memory that is pinned as long as it is held. Its holders share it.
type Registration struct {
	Request // the whole of it: at least what was asked for, in whole pages

	c       *Cache
	pin     *Pin
	id      uint64
	revoked atomic.Bool

	// Guarded by Cache.mu.
	state      regState
	refs       int
	settled    chan struct{} // closed when pinning, or dying, has ended
	next, prev *Registration // in Cache.unused; nil while in use
}

// register pins a range that no registration covers. It returns nil when Get must look again.
func (c *Cache) register(addr uintptr, size int, dir Direction, attr CacheAttr) (*Registration, error) {
	if size <= 0 || uint64(addr) > math.MaxUint64-uint64(size)-PageSize {
		return nil, fmt.Errorf("registration of %d bytes at %#x: %w", size, addr, ErrRange)
	}
	first := addr &^ (PageSize - 1)
	pages := (addr + uintptr(size) + PageSize - 1) &^ (PageSize - 1)
	r := &Registration{Request: Request{Addr: first, Size: int(pages - first), Direction: dir, Attr: attr}, c: c, refs: 1}
	if err := r.Check(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	wait, victims, err := c.reserve(r)
	c.mu.Unlock()
	c.unpin(victims)
	switch {
	case err != nil:
		return nil, err
	case wait != nil:
		<-wait
		return nil, nil
	case victims != nil:
		return nil, nil
	}
	return c.pinReserved(r, addr)
}

// reserve puts r into the index. If it cannot yet, it returns what to wait for, or to unpin, before the next attempt.
func (c *Cache) reserve(r *Registration) (wait chan struct{}, victims []*Registration, err error) {
	if c.closed {
		return nil, nil, fmt.Errorf("registration cache: %w", ErrClosed)
	}
	end := r.Addr + uintptr(r.Size)
	i := max(0, c.after(r.Addr)-1)
	for ; i < len(c.index) && c.index[i].Addr < end; i++ {
		other := c.index[i]
		switch {
		case other.Addr+uintptr(other.Size) <= r.Addr:
		case other.state == regPinning || other.state == regDying:
			return other.settled, victims, nil
		case other.state == regLive && other.Direction == r.Direction && other.Addr <= r.Addr && other.Addr+uintptr(other.Size) >= end:
			return closed(), victims, nil // pinned by somebody else just now, and perhaps released again
		case other.refs == 0:
			victims = append(victims, c.kill(other))
		default:
			return nil, victims, fmt.Errorf("registration of %d bytes at %#x, %v: %w: %d bytes at %#x, %v, %d users",
				r.Size, r.Addr, r.Direction, ErrOverlap, other.Size, other.Addr, other.Direction, other.refs)
		}
	}
	if victims = append(victims, c.evict(int64(r.Size), false)...); victims != nil {
		return nil, victims, nil
	}
	if c.stats.Pinned+c.leaving+int64(r.Size) > c.cfg.Limit && c.leaving > 0 {
		return c.dying(), nil, nil
	}
	r.settled = make(chan struct{})
	c.index = slices.Insert(c.index, c.after(r.Addr), r)
	c.stats.Pinned += int64(r.Size)
	c.stats.Misses++
	return nil, nil, nil
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// pinReserved pins r, and takes the buffer's number right after (§12.5).
func (c *Cache) pinReserved(r *Registration, addr uintptr) (*Registration, error) {
	pin, err := c.pinAndRetry(r)
	if err == nil && c.cfg.ID != nil {
		if r.id, err = c.cfg.ID(addr); err != nil {
			err = fmt.Errorf("registration of %#x: buffer id: %w", addr, errors.Join(err, pin.Unpin()))
		}
	}
	c.mu.Lock()
	if err == nil && c.closed {
		c.mu.Unlock()
		err = errors.Join(fmt.Errorf("registration cache: %w", ErrClosed), pin.Unpin())
		c.mu.Lock()
	}
	defer c.mu.Unlock()
	defer close(r.settled)
	if err != nil {
		c.remove(r)
		return nil, err
	}
	r.pin, r.state = pin, regLive
	pin.OnFree(func(why Reason) {
		if why != ReasonUnpin { // no lock: whoever frees the memory may hold any
			r.revoked.Store(true)
			c.stale.Store(true)
		}
	})
	return r, nil
}

// pinAndRetry unpins unused registrations, one at a time, as long as there is no room for r.
func (c *Cache) pinAndRetry(r *Registration) (*Pin, error) {
	for {
		pin, err := c.cfg.Pinner.Pin(r.Addr, r.Size, r.Direction, r.Attr)
		if !errors.Is(err, syscall.ENOMEM) && !errors.Is(err, syscall.ENOSPC) {
			return pin, err
		}
		c.mu.Lock()
		others := c.dying()
		victims := c.evict(0, true)
		c.mu.Unlock()
		switch {
		case victims != nil:
			c.unpin(victims)
		case others != nil:
			<-others
		default:
			return nil, err
		}
	}
}

// Segments are the bus addresses of the whole registration, in the order of its memory. They are not to be changed.
func (r *Registration) Segments() []Segment { return r.pin.Segments }

// Revoked is closed when the memory has been taken away. The registration is still to be released.
func (r *Registration) Revoked() <-chan struct{} { return r.pin.Revoked() }

// Release ends the caller's use. The memory stays pinned as long as the cache has room. A Release without Get returns
// ErrUnpinned.
func (r *Registration) Release() error {
	c := r.c
	c.mu.Lock()
	if r.refs == 0 {
		c.mu.Unlock()
		return fmt.Errorf("release of %#x: %w", r.Addr, ErrUnpinned)
	}
	r.refs--
	var victims []*Registration
	switch {
	case r.refs > 0 || r.state == regDying: // by Close
	case r.state == regGone:
		_, dead := c.dead[r]
		delete(c.dead, r)
		c.mu.Unlock()
		if dead {
			_ = r.pin.Unpin() // ErrRevoked
		}
		return nil
	case r.state == regLive && !r.revoked.Load():
		r.next, r.prev = c.unused.next, &c.unused
		r.next.prev, r.prev.next = r, r
		c.stats.Unused += int64(r.Size)
		victims = c.evict(0, false)
	default:
		if r.state == regLive {
			c.stats.Invalidated++
		}
		victims = append(victims, c.kill(r))
	}
	c.mu.Unlock()
	c.unpin(victims)
	return nil
}
