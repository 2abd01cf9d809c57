// SPDX-License-Identifier: Apache-2.0

package tegra

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// CacheConfig is what a registration cache works with.
type CacheConfig struct {
	Pinner Pinner
	Limit  int64 // bytes that may be pinned while some of them are not in use
	// ID returns the number of the buffer that an address belongs to (CU_POINTER_ATTRIBUTE_BUFFER_ID): another one than at
	// the time of the pin means that the buffer was freed and the address given out again. It is asked on every hit. nil:
	// revocation alone tells.
	ID func(addr uintptr) (uint64, error)
}

// CacheStats count what a cache did; bytes are those of the moment.
type CacheStats struct {
	Hits, Misses uint64
	Evicted      uint64 // unpinned to make room
	Invalidated  uint64 // revoked, or of another buffer by now
	Pinned       int64  // bytes that are pinned or just being pinned, but not those just being unpinned
	Unused       int64  // of these, bytes that nobody uses and that are kept for the next Get
}

// A Cache is a registration cache with lazy unpinning (GPUDirect RDMA 12.9 §11.1, §11.2, §12.5): memory stays pinned
// after its last user has released it, until the room is needed (least recently used first), the memory is revoked, or
// its address belongs to another buffer. All methods may be called concurrently; a hit allocates nothing.
type Cache struct {
	cfg   CacheConfig
	stale atomic.Bool // a registration has been revoked since the last sweep

	mu      sync.Mutex // not held while memory is pinned or unpinned
	index   []*Registration
	dead    map[*Registration]struct{} // revoked, and still used: no longer in the index
	unused  Registration               // ring of those without user; next is the most recently used
	leaving int64                      // bytes that are being unpinned
	stats   CacheStats
	failed  []error // of unpinning
	closed  bool
}

// NewCache makes an empty cache. Close it before the Pinner.
func NewCache(cfg CacheConfig) (*Cache, error) {
	if cfg.Pinner == nil || cfg.Limit < 0 {
		return nil, fmt.Errorf("registration cache: it needs a Pinner, and a limit of 0 or more bytes, not %d", cfg.Limit)
	}
	c := &Cache{cfg: cfg, dead: map[*Registration]struct{}{}}
	c.unused.next, c.unused.prev = &c.unused, &c.unused
	return c, nil
}

// Get returns a registration that covers size bytes at addr, for the caller to Release. A live one in the same
// direction that covers them is shared; else their pages are pinned. A pin that fails for want of memory or of places
// (ENOMEM, ENOSPC) is tried again after unused ones have been unpinned. A range that lies across one that is in use, or
// in it but in the other direction, is refused with ErrOverlap, as Pinner.Pin refuses it.
func (c *Cache) Get(addr uintptr, size int, dir Direction, attr CacheAttr) (*Registration, error) {
	if c.stale.Load() {
		c.sweep()
	}
	for {
		c.mu.Lock()
		r := c.covering(addr, size, dir)
		if r == nil {
			c.mu.Unlock()
			if r, err := c.register(addr, size, dir, attr); r != nil || err != nil {
				return r, err
			}
			continue // what was in the way has gone, or somebody else has pinned the memory
		}
		if r.Attr != attr {
			c.mu.Unlock()
			return nil, fmt.Errorf("registration of %#x: %w: it is pinned as %v, %v is asked for", addr, ErrCacheAttr, r.Attr, attr)
		}
		c.hold(r)
		c.mu.Unlock()
		if c.valid(r, addr) {
			return r, nil
		}
		c.invalidate(r)
	}
}

// covering finds the live registration that a range lies in.
func (c *Cache) covering(addr uintptr, size int, dir Direction) *Registration {
	i := c.after(addr) - 1
	if c.closed || i < 0 || size <= 0 {
		return nil
	}
	r := c.index[i]
	if off := addr - r.Addr; r.state != regLive || r.Direction != dir || off >= uintptr(r.Size) || size > r.Size-int(off) {
		return nil
	}
	return r
}

// after is the place in the index of the first registration that begins after addr.
func (c *Cache) after(addr uintptr) int {
	low, high := 0, len(c.index)
	for low < high {
		if mid := (low + high) / 2; c.index[mid].Addr <= addr {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// hold takes a reference.
func (c *Cache) hold(r *Registration) {
	c.stats.Hits++
	if r.refs == 0 {
		c.unlink(r)
	}
	r.refs++
}

func (c *Cache) unlink(r *Registration) {
	r.next.prev, r.prev.next = r.prev, r.next
	r.next, r.prev = nil, nil
	c.stats.Unused -= int64(r.Size)
}

// valid is §12.5's tag check, for a registration that the caller holds.
func (c *Cache) valid(r *Registration, addr uintptr) bool {
	if r.revoked.Load() {
		return false
	}
	if c.cfg.ID == nil {
		return true
	}
	id, err := c.cfg.ID(addr)
	return err == nil && id == r.id
}

// invalidate gives back a reference that was taken of a registration that is not valid.
func (c *Cache) invalidate(r *Registration) {
	c.mu.Lock()
	c.stats.Hits--
	c.condemn(r)
	c.mu.Unlock()
	_ = r.Release() // the last one unpins it
}

// condemn makes sure that nobody else gets r, which is used. When it has been revoked its address is free again.
func (c *Cache) condemn(r *Registration) {
	if r.state == regLive {
		c.stats.Invalidated++
		r.state = regInvalid
	}
	if r.state == regInvalid && r.revoked.Load() {
		c.remove(r)
		c.dead[r] = struct{}{}
	}
}

// remove takes r out of the index. Its bytes are no longer pinned.
func (c *Cache) remove(r *Registration) {
	i := c.after(r.Addr) - 1
	c.index = slices.Delete(c.index, i, i+1)
	if r.state == regDying {
		c.leaving -= int64(r.Size)
	} else {
		c.stats.Pinned -= int64(r.Size)
	}
	r.state = regGone
}

// sweep removes what has been revoked.
func (c *Cache) sweep() {
	var victims []*Registration
	c.mu.Lock()
	c.stale.Store(false)
	for _, r := range slices.Clone(c.index) {
		switch {
		case !r.revoked.Load() || r.state != regLive && r.state != regInvalid:
		case r.refs > 0:
			c.condemn(r)
		default:
			c.stats.Invalidated++
			victims = append(victims, c.kill(r))
		}
	}
	c.mu.Unlock()
	c.unpin(victims)
}

// kill marks r, which nobody uses, for unpin.
func (c *Cache) kill(r *Registration) *Registration {
	if r.next != nil {
		c.unlink(r)
	}
	r.state, r.settled = regDying, make(chan struct{})
	c.stats.Pinned -= int64(r.Size)
	c.leaving += int64(r.Size)
	return r
}

// unpin unpins what has been killed.
func (c *Cache) unpin(victims []*Registration) {
	for _, r := range victims {
		err := r.pin.Unpin()
		c.mu.Lock()
		if err != nil && !errors.Is(err, ErrRevoked) {
			c.failed = append(c.failed, err)
		}
		c.remove(r)
		close(r.settled)
		c.mu.Unlock()
	}
}

// evict kills the least recently used ones until room bytes fit under the limit, or one at least.
func (c *Cache) evict(room int64, one bool) (victims []*Registration) {
	for c.unused.prev != &c.unused && (one || c.stats.Pinned+room > c.cfg.Limit) {
		victims = append(victims, c.kill(c.unused.prev))
		c.stats.Evicted++
		one = false
	}
	return victims
}

// dying is what to wait for while something is being unpinned; nil: nothing is.
func (c *Cache) dying() chan struct{} {
	for _, r := range c.index {
		if r.state == regDying {
			return r.settled
		}
	}
	return nil
}

// Stats returns the counts.
func (c *Cache) Stats() CacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Close unpins everything. Its error names the registrations that somebody still holds: their memory is taken from the
// device as well.
func (c *Cache) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return fmt.Errorf("registration cache: %w", ErrClosed)
	}
	c.closed = true
	var errs []error
	for r := range c.dead {
		errs = append(errs, r.leak(), ignoreRevoked(r.pin.Unpin()))
	}
	clear(c.dead)
	for len(c.index) > 0 {
		r := c.index[0]
		var victims []*Registration
		if r.state != regPinning && r.state != regDying {
			if r.refs > 0 {
				errs = append(errs, r.leak())
			}
			victims = append(victims, c.kill(r))
		}
		settled := r.settled
		c.mu.Unlock()
		c.unpin(victims)
		<-settled
		c.mu.Lock()
	}
	errs = append(errs, c.failed...)
	c.mu.Unlock()
	return errors.Join(errs...)
}

func (r *Registration) leak() error {
	return fmt.Errorf("registration cache: leaked: %d bytes at %#x, %v, %d users", r.Size, r.Addr, r.Direction, r.refs)
}

func ignoreRevoked(err error) error {
	if errors.Is(err, ErrRevoked) {
		return nil
	}
	return err
}
