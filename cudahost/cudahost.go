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

// Flags are the flags of cuMemHostAlloc, with their values, and Shared.
type Flags uint

const (
	Default       Flags = 0
	Portable      Flags = 1 << 0 // usable from every CUDA context
	Mapped        Flags = 1 << 1 // has a device pointer
	WriteCombined Flags = 1 << 2 // fast for devices, extremely slow for the CPU to read

	// Shared memory is in a memfd, which another process can map read-only (Buffer.File). It cannot be write-combined.
	Shared Flags = 1 << 16

	knownFlags = Portable | Mapped | WriteCombined | Shared
)

// Errors that callers distinguish. They are wrapped with the details.
var (
	ErrBackend = errors.New("no such memory back end")
	ErrSize    = errors.New("impossible buffer size")
	ErrFlags   = errors.New("unknown allocation flags")
	ErrFreed   = errors.New("buffer was freed already")
)

// An Allocator allocates buffers.
type Allocator interface {
	// AllocHost returns a buffer of size bytes of zeroed memory, 4 KiB aligned. The caller must close it.
	AllocHost(size int, flags Flags) (*Buffer, error)
	// Backend returns "cuda" or "host".
	Backend() string
	// Close frees the back end's resources. Its buffers must have been closed.
	Close() error
}

// An Invalidator is notified before memory goes away, like nv-p2p by the kernel's MMU notifier: when Invalidate
// returns, no device may access the range any more.
type Invalidator interface {
	Invalidate(addr uintptr, size int)
}

// Config selects a back end.
type Config struct {
	Backend     string       // "auto" or "", "cuda", or "host"
	Invalidator Invalidator  // may be nil
	Logger      *slog.Logger // nil: slog.Default()
	Beside      Allocator    // another allocator of the process, or nil; only one of the two warns about host memory

	library string // used instead of libcuda
	root    fs.FS  // used instead of the machine's files
}

// Open returns the back end selected by cfg. "auto" (or "") selects CUDA if it works; otherwise it selects host and
// logs the reason, as a warning if there is a GPU.
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
		cfg.Logger.Warn("a GPU is present, but not used: memory back end is host", "reason", err, "files", trouble, "remedy", remedy)
	} else {
		cfg.Logger.Info("memory back end is host", "reason", err)
	}
	return host, nil
}

// A Buffer is memory shared by the CPU and devices.
type Buffer struct {
	id          uint64
	flags       Flags
	invalidator Invalidator
	free        func() error
	file        *os.File // nil if the memory is not Shared

	mu    sync.Mutex
	bytes []byte
	addr  uintptr
	dev   uintptr // 0: same as addr
}

// Bytes returns the memory as seen by the CPU, with the requested size. It returns nil after Close.
func (b *Buffer) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes
}

// Addr returns the CPU's virtual address.
func (b *Buffer) Addr() uintptr { return b.addr }

// DevicePointer returns the address of the same memory for kernels. It equals the CPU's address on the host back end,
// for memory without Mapped, which kernels on other GPUs cannot access, and, unless the memory is Shared, on GPUs that
// use the CPU's addresses.
func (b *Buffer) DevicePointer() uintptr {
	if b.dev != 0 {
		return b.dev
	}
	return b.addr
}

// Flags returns the flags that the buffer was allocated with.
func (b *Buffer) Flags() Flags { return b.flags }

// File returns the memfd that contains Shared memory and the offset of Bytes in it, or nil for other memory. A process
// that gets the descriptor can map the memory read-only; it can neither write to it nor change its length. The file is
// closed with the buffer; the memory remains until the last process has unmapped it.
func (b *Buffer) File() (file *os.File, offset int64) {
	if b.file == nil {
		return nil, 0
	}
	return b.file, pageSize
}

// Close frees the memory, after Config.Invalidator, if any, has taken it away from devices. The error of a second Close
// wraps ErrFreed.
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
