// SPDX-License-Identifier: Apache-2.0

package tegra

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

const (
	firstSegments = 64                    // number of segments for which there is room at first; behind an IOMMU a pin has a single one
	moreSegments  = 4096                  // maximum number of segments that each further query returns
	lastPause     = 64 * time.Millisecond // before the last try of Pin; the first is 1 ms
)

// devicePin is the Mapping of a pin.
type devicePin struct {
	owned
	d      *Device
	handle uint32
	cookie uint64
	revoke func(Reason)
	put    bool // set by end: the module no longer has the pin
}

// Pin implements Pinner. Besides the errors of Request.Check, the error wraps ErrRange (not mapped, not writable, part
// of two mappings, or device memory), ErrCacheAttr, ErrOverlap, ErrFenced, ErrRevoked, ErrGone, ErrClosed, ErrVersion,
// or a system error such as ENOMEM beyond RLIMIT_MEMLOCK or ENOSPC beyond the module's number of pins. It is EAGAIN if the
// mapping changed during each of eight tries, between which Pin pauses for 127 ms in all.
func (d *Device) Pin(addr uintptr, size int, dir Direction, attr CacheAttr) (*Pin, error) {
	r := Request{Addr: addr, Size: size, Direction: dir, Attr: attr}
	if err := r.Check(); err != nil {
		return nil, err
	}
	for pause := time.Millisecond; ; pause *= 2 {
		p, err := d.pinOnce(r)
		if !errors.Is(err, unix.EAGAIN) || pause > lastPause {
			return p, err
		}
		time.Sleep(pause)
	}
}

// pinOnce is Pin without a second try. The module's PIN fails with EAGAIN if the memory was unmapped meanwhile or its pages
// kept being replaced. With nv-p2p, and before Linux 5.16 for drivers' memory and private mappings of files, it also does if
// the kernel only touched the mapping, as compaction does.
func (d *Device) pinOnce(r Request) (*Pin, error) {
	d.pinning.RLock()
	defer d.pinning.RUnlock()
	p := &devicePin{d: d, owned: newOwned(fmt.Sprintf("pin at %#x", r.Addr), r.Size)}
	if err := d.nextCookie(p); err != nil {
		return nil, err
	}
	request := uapi.Pin{Flags: pinFlags(r.Direction, r.Attr), VA: uint64(r.Addr), Size: uint64(r.Size), Cookie: p.cookie}
	segments := make([]uapi.Segment, firstSegments)
	if err := d.drv.pin(&request, segments); err != nil {
		return nil, d.wrap(err, "pin %#x, %d bytes, %v, %v", r.Addr, r.Size, r.Direction, r.Attr)
	}
	p.handle = request.Handle
	segments, err := d.allSegments(p, segments, int(request.NSegs))
	if err != nil {
		_ = p.end()
		return nil, d.wrap(err, "pin %#x, %d bytes", r.Addr, r.Size)
	}
	list := make([]Segment, len(segments))
	for i, s := range segments {
		list[i] = Segment{IOVA: s.IOVA, Len: int(s.Len)}
	}
	pin, revoke := NewPin(r, list, p)
	p.revoke = revoke
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pins[p] = struct{}{}
	return pin, nil
}

// nextCookie gives a pin a unique number, because the module reuses its handles. The error wraps ErrClosed.
func (d *Device) nextCookie(p *devicePin) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("%s: %w", d.path, ErrClosed)
	}
	d.cookie++
	p.cookie = d.cookie
	return nil
}

func pinFlags(dir Direction, attr CacheAttr) uint32 {
	flags := uint32(uapi.PinToDevice | uapi.PinExpectWB)
	if dir == FromDevice {
		flags = uapi.PinFromDevice | uapi.PinExpectWB
	}
	if attr == WriteCombined {
		flags ^= uapi.PinExpectWB | uapi.PinExpectWC
	}
	return flags
}

// allSegments returns all n segments of a pin, of which first are known, and checks that they add up to its size.
func (d *Device) allSegments(p *devicePin, first []uapi.Segment, n int) ([]uapi.Segment, error) {
	if n == 0 {
		return nil, ErrRevoked // before PIN returned
	}
	segments := first[:min(n, len(first))]
	for len(segments) < n {
		more := make([]uapi.Segment, min(n-len(segments), moreSegments))
		q := uapi.Query{Handle: p.handle, SegFirst: uint32(len(segments))}
		if err := d.drv.query(&q, more); err != nil {
			return nil, err
		}
		if q.State == uapi.PinRevoked {
			return nil, ErrRevoked
		}
		segments = append(segments, more...)
	}
	sum := uint64(0)
	for _, s := range segments {
		sum += s.Len
	}
	if sum != uint64(p.size) {
		return nil, fmt.Errorf("%w: its %d segments have %d bytes", ErrVersion, n, sum)
	}
	return segments, nil
}

// Unmap implements Mapping: when PUT returns, the IOMMU no longer maps the pages.
func (p *devicePin) Unmap() error { return p.end() }

// Release implements Mapping.
func (p *devicePin) Release() error {
	if p.put {
		return nil
	}
	return p.end()
}

// end makes the module forget the pin. A pin that ended with the function or the file has already been forgotten.
func (p *devicePin) end() error {
	err := p.d.putHandle(p.handle, p.what)
	if err == nil {
		p.put = true
		p.d.mu.Lock()
		delete(p.d.pins, p)
		p.d.mu.Unlock()
	}
	return err
}

func (d *Device) putHandle(handle uint32, what string) error {
	if err := d.drv.put(handle); err != nil && !hasGone(err) {
		return d.wrap(err, "%s", what)
	}
	return nil
}

// deviceMemory is coherent memory that the module has allocated.
type deviceMemory struct {
	owned
	bytes  []byte
	handle uint32
}

// AllocCoherent implements Pinner: it allocates one segment of memory that is coherent with the function.
func (d *Device) AllocCoherent(size int) (*Coherent, error) {
	if size <= 0 || size > MaxCoherentSize {
		return nil, fmt.Errorf("coherent memory: %w: %d bytes (want 1 to %d)", ErrSize, size, MaxCoherentSize)
	}
	size = (size + PageSize - 1) &^ (PageSize - 1)
	d.pinning.RLock()
	defer d.pinning.RUnlock()
	d.mu.Lock()
	closed := d.closed
	d.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("%s: %w", d.path, ErrClosed)
	}
	a := uapi.Alloc{Size: uint64(size)}
	if err := d.drv.alloc(&a); err != nil {
		return nil, d.wrap(err, "coherent memory of %d bytes", size)
	}
	m := &deviceMemory{owned: newOwned("coherent memory", size), handle: a.Handle}
	var err error
	if m.bytes, err = d.drv.mmap(a.MmapOffset, size); err != nil {
		_ = d.putHandle(a.Handle, m.what)
		return nil, d.wrap(err, "mapping coherent memory of %d bytes", size)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.coherent[m] = struct{}{}
	return NewCoherent(m.bytes, []Segment{{IOVA: a.IOVA, Len: size}}, func() error { return d.freeCoherent(m) }), nil
}

// freeCoherent unmaps the memory before it puts the handle, because the module does not free mapped memory.
func (d *Device) freeCoherent(m *deviceMemory) error {
	d.mu.Lock()
	delete(d.coherent, m)
	err := unix.Munmap(m.bytes)
	d.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: unmapping coherent memory: %w", d.path, err)
	}
	return d.putHandle(m.handle, m.what)
}

// abandonCoherent maps ordinary memory in place of coherent memory that was not released. The mapping of coherent
// memory would keep the file open, and without any mapping, code that still reads the memory would crash.
func (d *Device) abandonCoherent() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for m := range d.coherent {
		_, err := unix.MmapPtr(-1, 0, unsafe.Pointer(&m.bytes[0]), uintptr(len(m.bytes)),
			unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED)
		if err != nil {
			return fmt.Errorf("%s: leaked coherent memory: %w", d.path, err)
		}
	}
	return nil
}
