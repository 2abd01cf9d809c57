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

// hostAllocator is the back end for machines without CUDA. It uses anonymous memory, locked as far as the limit allows.
type hostAllocator struct {
	invalidator Invalidator
	log         *slog.Logger
	lastID      atomic.Uint64
	warn        *sync.Once // may be shared with another allocator, see Config.Beside
}

func (a *hostAllocator) Backend() string { return "host" }

// Close implements Allocator. There is nothing to free.
func (a *hostAllocator) Close() error { return nil }

// AllocHost implements Allocator. It maps one more page than requested, in front of the buffer: nv-p2p's notifier
// mistakes a change of a mapping that ends where a pin starts for a change of the pin, so no foreign mapping may end
// there.
func (a *hostAllocator) AllocHost(size int, flags Flags) (*Buffer, error) {
	return a.alloc(context.Background(), size, flags)
}

// During returns a or, if a is the host back end, an Allocator like it whose AllocHost fails with the cause of ctx's
// end if ctx ends before the memory is allocated, because large memory takes seconds. Allocating Shared memory is not
// interrupted.
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
	// A device keeps using the physical pages, so a child process must not make them copy-on-write.
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

// fill makes the kernel provide all pages, and locks them as far as the limit allows. Its pieces start at huge pages,
// because the kernel would otherwise split these.
func (a *hostAllocator) fill(ctx context.Context, memory []byte) error {
	const piece = 8 << 20
	locked := true
	pieces := slices.Collect(slices.Chunk(memory[pageSize:], piece))
	for _, part := range append(pieces, memory[:pageSize]) {
		if ctx.Err() != nil {
			return fmt.Errorf("%d bytes of memory were not allocated: %w", len(memory), context.Cause(ctx))
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

// hugePage is the number of bytes that one page table entry can map. A frame in few huge pages is cheaper to walk, to
// pin and to send without copying.
const hugePage = 2 << 20

// inHugePages returns a part of mem that is length bytes long and whose second page starts at a huge page boundary, and
// asks the kernel for huge pages. It does no harm if the kernel has none.
func inHugePages(mem []byte, length int) []byte {
	at := -(uintptr(unsafe.Pointer(&mem[0])) + pageSize) % hugePage
	used := mem[at:][:length]
	_ = unix.Madvise(used[pageSize:], unix.MADV_HUGEPAGE)
	return used
}

// inWholeHugePages returns the length of a mapping in which the last huge page is complete too, unless that takes more
// than an eighth more memory. In an incomplete one, the kernel uses small pages, each of which must be pinned
// separately.
func inWholeHugePages(length int) int {
	whole := (length-pageSize+hugePage-1)&^(hugePage-1) + pageSize
	if whole-length > length/8 {
		return length
	}
	return whole
}

// LockedBytes returns the number of bytes of locked memory (RLIMIT_MEMLOCK) that a buffer of the host back end uses.
func LockedBytes(size int, flags Flags) int {
	length := withLeadingPage(size)
	if size < hugePage || flags&Shared != 0 {
		return length
	}
	return inWholeHugePages(length)
}

// withLeadingPage returns the length of a mapping for a buffer of size bytes that starts at its second page.
func withLeadingPage(size int) int { return pageSize + (size+pageSize-1)&^(pageSize-1) }

// checkRequest checks the arguments of AllocHost for every back end.
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

// warnLimit logs that memory is not locked, and what to do. It is no warning if only the limit of an ordinary process
// is the reason, which is usual outside the service.
func (a *hostAllocator) warnLimit(length int, err error) {
	var limit unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit)
	level := slog.LevelWarn
	if limit.Cur != unix.RLIM_INFINITY && (errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EPERM)) {
		level = slog.LevelInfo
	}
	a.log.Log(context.Background(), level, "frame memory is not locked and may be swapped out: raise the limit "+
		"with `ulimit -l unlimited` or LimitMEMLOCK= in the service", "bytes", length, "limit", limit.Cur, "error", err)
}
