// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

const pageSize = 4096

// hostAllocator is the back end for machines without CUDA: anonymous memory, locked as far as the limit allows.
type hostAllocator struct {
	invalidator Invalidator
	log         *slog.Logger
	lastID      atomic.Uint64
	warn        *sync.Once // shared by the allocators of a process that know of each other
}

func (a *hostAllocator) Backend() string { return "host" }

// Close implements Allocator: it holds nothing.
func (a *hostAllocator) Close() error { return nil }

// AllocHost maps one page more than asked, in front of the buffer: nv-p2p's notifier takes a change of the mapping
// that ends where a pin begins for a change of the pin, so no foreign mapping may end there.
func (a *hostAllocator) AllocHost(size int, flags Flags) (*Buffer, error) {
	return a.alloc(context.Background(), size, flags)
}

// During is a whose AllocHost fails with the cause of ctx's end when ctx ends, where the memory is this machine's own: large memory
// takes seconds.
func During(ctx context.Context, a Allocator) Allocator {
	if host, is := a.(*hostAllocator); is {
		return &during{host, ctx}
	}
	return a
}

type during struct {
	*hostAllocator
	ctx context.Context
}

func (d *during) AllocHost(size int, flags Flags) (*Buffer, error) {
	return d.alloc(d.ctx, size, flags)
}

func (a *hostAllocator) alloc(ctx context.Context, size int, flags Flags) (*Buffer, error) {
	if err := checkRequest(size, flags); err != nil {
		return nil, err
	}
	if flags&Shared != 0 {
		return a.allocShared(size, flags)
	}
	length := LockedBytes(size, flags)
	room := length
	if size >= hugePage {
		room = length + hugePage
	}
	mem, err := unix.Mmap(-1, 0, room, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes of anonymous memory: %w", room, err)
	}
	used := mem[:length]
	if size >= hugePage {
		used = inHugePages(mem, length)
	}
	if err := a.fill(ctx, used); err != nil {
		return nil, errors.Join(err, unix.Munmap(mem))
	}
	// A device keeps the physical pages: a child must not make them copy-on-write.
	if err := unix.Madvise(mem, unix.MADV_DONTFORK); err != nil {
		return nil, errors.Join(fmt.Errorf("madvise(MADV_DONTFORK): %w", err), unix.Munmap(mem))
	}
	bytes := used[pageSize : pageSize+size : pageSize+size]
	return &Buffer{
		id: a.lastID.Add(1), flags: flags, invalidator: a.invalidator,
		bytes: bytes, addr: uintptr(unsafe.Pointer(&bytes[0])),
		free: func() error { return unix.Munmap(mem) },
	}, nil
}

// fill has the kernel give all pages, and locks them as far as the limit allows. Its pieces begin at huge pages, which the kernel would
// split else.
func (a *hostAllocator) fill(ctx context.Context, memory []byte) error {
	const piece = 8 << 20
	locked := true
	pieces := slices.Collect(slices.Chunk(memory[pageSize:], piece))
	for _, part := range append(pieces, memory[:pageSize]) {
		if ctx.Err() != nil {
			return fmt.Errorf("%d bytes of memory are not made: %w", len(memory), context.Cause(ctx))
		}
		for i := 0; i < len(part); i += pageSize {
			part[i] = 0
		}
		if !locked {
			continue
		}
		if err := unix.Mlock(part); err != nil {
			locked = false
			a.warn.Do(func() { a.warnLimit(len(memory), err) })
		}
	}
	return nil
}

// hugePage is what one entry of a page table can map: a frame in few of them costs less to walk, to pin and to send
// without copying.
const hugePage = 2 << 20

// inHugePages is the part of mem, length bytes long, whose second page begins at a huge one, and asks the kernel for
// those; it may have none, which does no harm.
func inHugePages(mem []byte, length int) []byte {
	at := -(uintptr(unsafe.Pointer(&mem[0])) + pageSize) % hugePage
	used := mem[at:][:length]
	_ = unix.Madvise(used[pageSize:], unix.MADV_HUGEPAGE)
	return used
}

// inWholeHugePages is the length of a mapping whose last huge page is whole, too, where that takes at most an eighth more: else the
// kernel has that in small pages, each of which is pinned by itself.
func inWholeHugePages(length int) int {
	whole := (length-pageSize+hugePage-1)&^(hugePage-1) + pageSize
	if whole-length > length/8 {
		return length
	}
	return whole
}

// LockedBytes returns the bytes of locked memory (RLIMIT_MEMLOCK) that a buffer of the host back end takes.
func LockedBytes(size int, flags Flags) int {
	length := withLeadingPage(size)
	if size < hugePage || flags&Shared != 0 {
		return length
	}
	return inWholeHugePages(length)
}

// withLeadingPage is the length of a mapping for a buffer of size bytes that begins at its second page.
func withLeadingPage(size int) int { return pageSize + (size+pageSize-1)&^(pageSize-1) }

// checkRequest checks what is asked of any back end.
func checkRequest(size int, flags Flags) error {
	const most = 1 << 40
	switch {
	case size <= 0 || size > most:
		return fmt.Errorf("%w: %d bytes, want 1 to %d", ErrSize, size, most)
	case flags&^knownFlags != 0:
		return fmt.Errorf("%w: %#x, known are %#x", ErrFlags, uint(flags), uint(knownFlags))
	case flags&Shared != 0 && flags&WriteCombined != 0:
		return fmt.Errorf("%w: memory that other processes read cannot be write-combined", ErrFlags)
	}
	return nil
}

// warnLimit says once that memory is not locked, and what to do.
func (a *hostAllocator) warnLimit(length int, err error) {
	var limit unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit)
	a.log.Warn("frame memory is not locked and may be swapped out: raise the limit with `ulimit -l unlimited` or LimitMEMLOCK= in the service",
		"bytes", length, "limit", limit.Cur, "error", err)
}
