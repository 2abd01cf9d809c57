// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
)

// Flags are those of cuMemHostAlloc, with its values, and Shared.
type Flags uint

const (
	Default       Flags = 0
	Portable      Flags = 1 << 0 // usable from every CUDA context
	Mapped        Flags = 1 << 1 // has a device pointer
	WriteCombined Flags = 1 << 2 // fast for devices, ruinous to read with the CPU

	// Shared memory lies in a memfd, which another process can map to read (Buffer.File). It cannot be write-combined.
	Shared Flags = 1 << 16

	knownFlags = Portable | Mapped | WriteCombined | Shared
)

// Errors that callers tell apart. They come wrapped with what, where and what to do.
var (
	ErrBackend = errors.New("no such memory back end")
	ErrSize    = errors.New("impossible buffer size")
	ErrFlags   = errors.New("unknown allocation flags")
	ErrFreed   = errors.New("buffer was freed already")
)

// An Allocator makes buffers.
type Allocator interface {
	// AllocHost returns size bytes of zeroed memory, 4 KiB aligned.
	AllocHost(size int, flags Flags) (*Buffer, error)
	// Backend is "cuda" or "host".
	Backend() string
	// Close gives back what the back end holds; its buffers must have been closed.
	Close() error
}

// An Invalidator is told before memory goes away, as the kernel's MMU notifier tells nv-p2p: when it returns, no
// device may touch the range any more.
type Invalidator interface {
	Invalidate(addr uintptr, size int)
}

// Config chooses a back end.
type Config struct {
	Backend     string      // "auto" (also ""), "cuda" or "host"
	Invalidator Invalidator // may be nil
	Logger      *slog.Logger
	Beside      Allocator // another one of the same process: what host memory has to warn of is said by one of the two; may be nil

	library string // instead of libcuda
	root    fs.FS  // instead of the machine's files
}

// Open returns the back end that cfg names. "auto" takes CUDA where it works and says why where it does not, with a warning
// where a GPU is there.
func Open(cfg Config) (Allocator, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	host := &hostAllocator{invalidator: cfg.Invalidator, log: cfg.Logger, warn: new(sync.Once)}
	if beside, is := cfg.Beside.(*hostAllocator); is {
		host.warn = beside.warn
	}
	switch cfg.Backend {
	case "host":
		return host, nil
	case "auto", "", "cuda":
	default:
		return nil, fmt.Errorf("%w: %q: use auto, cuda or host", ErrBackend, cfg.Backend)
	}
	device, err := openDevice(cmp.Or(cfg.library, libcuda))
	switch {
	case err == nil:
		device.Logger = cfg.Logger
		cfg.Logger.Info("memory back end is cuda", "device", device.String())
		return &CUDA{Device: device, invalidator: cfg.Invalidator}, nil
	case cfg.Backend == "cuda":
		return nil, fmt.Errorf("%w: cuda: %w: use host or auto", ErrBackend, err)
	}
	if cfg.root == nil {
		cfg.root = os.DirFS("/")
	}
	if files := DeviceFiles(cfg.root); len(files) > 0 {
		trouble, remedy := Trouble(files)
		cfg.Logger.Warn("a GPU is there and is not used: memory back end is host", "reason", err, "files", trouble, "remedy", remedy)
	} else {
		cfg.Logger.Info("memory back end is host", "reason", err)
	}
	return host, nil
}

// A Buffer is memory that CPU and devices share.
type Buffer struct {
	id          uint64
	flags       Flags
	invalidator Invalidator
	free        func() error
	file        *os.File // nil: the memory is not Shared

	mu    sync.Mutex
	bytes []byte
	addr  uintptr
	dev   uintptr // 0: addr
}

// Bytes is the CPU's view, as long as was asked for; nil after Close.
func (b *Buffer) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes
}

// Addr is the CPU's virtual address.
func (b *Buffer) Addr() uintptr { return b.addr }

// DevicePointer is the address of the same memory for kernels. On the host back end it is the CPU's.
func (b *Buffer) DevicePointer() uintptr {
	if b.dev != 0 {
		return b.dev
	}
	return b.addr
}

// ID never repeats while the allocator lives: the same address with another ID is other memory
// (GPUDirect RDMA 12.9 §12.5).
func (b *Buffer) ID() uint64 { return b.id }

// Flags are those that the buffer was allocated with.
func (b *Buffer) Flags() Flags { return b.flags }

// File is the memfd that Shared memory lies in, and the offset at which Bytes begin in it; nil of other memory. Whoever gets the
// descriptor can map the memory to read, and can neither write to it nor change its length. It is closed with the buffer;
// the memory stays until the last process has unmapped it.
func (b *Buffer) File() (file *os.File, offset int64) {
	if b.file == nil {
		return nil, 0
	}
	return b.file, pageSize
}

// Close frees the memory. Devices that still reach it are cut off first. A second Close returns ErrFreed.
func (b *Buffer) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bytes == nil {
		return fmt.Errorf("buffer %d: %w", b.id, ErrFreed)
	}
	if b.invalidator != nil {
		b.invalidator.Invalidate(b.addr, len(b.bytes))
	}
	b.bytes = nil
	return b.free()
}
