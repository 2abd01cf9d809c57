// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Config configures a Context.
type Config struct {
	Library string // name or path of libucp; empty: LibraryName
}

// A Context is an instance of UCX in this process, using the devices allowed by UCX_NET_DEVICES and UCX_TLS. There may
// be several.
type Context struct {
	library *library
	handle  uintptr
	ipv6    bool // the library's TCP uses IPv6 rather than IPv4

	mu      sync.Mutex
	closed  bool
	workers []*Worker
	memory  []*Memory
}

// Open opens libucp and creates a context with the settings from the environment (UCX_*; `ucx_info -c -f` lists them).
// The error wraps ErrNoLibrary if libucp is missing or unsuitable. The caller must close the Context.
func Open(cfg Config) (*Context, error) {
	if cfg.Library == "" {
		cfg.Library = LibraryName
	}
	l, err := load(cfg.Library)
	if err != nil {
		return nil, err
	}
	if err := checkDescriptors(); err != nil {
		return nil, err
	}
	var settings uintptr
	if err := l.try(symConfigRead, "", 0, 0, uintptr(unsafe.Pointer(&settings))); err != nil {
		return nil, err
	}
	defer l.call(symConfigRelease, settings)
	c := &Context{library: l, ipv6: strings.HasPrefix(os.Getenv("UCX_TCP_AF_PRIO"), "inet6")}
	p := &contextParams{mask: paramFeatures | paramMTShared, features: featureAM | featureWakeup, mtShared: 1}
	if err := l.try(symInit, "", versionMajor, versionMinor, uintptr(unsafe.Pointer(p)), settings, uintptr(unsafe.Pointer(&c.handle))); err != nil {
		return nil, err
	}
	return c, nil
}

// Try opens libucp and a worker, as an output does, and returns the release. The library may hang or crash meanwhile.
func Try() (release string, err error) {
	c, err := Open(Config{})
	if err != nil {
		return "", err
	}
	w, err := c.NewWorker()
	if err != nil {
		return "", errors.Join(err, c.Close())
	}
	return c.Release(), errors.Join(w.Close(), c.Close())
}

// spareDescriptors is the number of descriptors that must be free when a context or a worker is created: more than the
// library opens for either with 16 network devices.
const spareDescriptors = 64

// checkDescriptors returns an error unless the process can open spareDescriptors more files: without them, the library
// fails an assertion (ucs_async_thread_start, 1.13), which ends the process. It opens only one itself, because others
// may need the rest.
func checkDescriptors() error {
	var limit unix.Rlimit
	open, err := os.ReadDir("/proc/self/fd")
	if err == nil {
		err = unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	}
	if spare := int64(limit.Cur) - int64(len(open)); err == nil && spare < spareDescriptors {
		err = fmt.Errorf("%d are left: %w", max(0, spare), unix.EMFILE)
	}
	if err != nil {
		return fmt.Errorf("ucx: the library needs %d more descriptors (LimitNOFILE= of the unit, ulimit -n): %w", spareDescriptors, err)
	}
	return nil
}

// Release returns the release of the library, such as 1.13.1.
func (c *Context) Release() string { return c.library.release }

// Close closes the context. If workers or memory are still open, Close closes them too and returns an error that wraps
// ErrOpen and counts them.
func (c *Context) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	c.closed = true
	workers, memory := slices.Clone(c.workers), slices.Clone(c.memory)
	c.mu.Unlock()
	var errs []error
	if len(workers)+len(memory) > 0 {
		errs = append(errs, fmt.Errorf("%w: context with %s and %s", ErrOpen, count(len(workers), "worker"), count(len(memory), "mapped memory")))
	}
	for _, w := range workers {
		errs = append(errs, w.Close())
	}
	for _, m := range memory {
		errs = append(errs, m.Close())
	}
	c.library.call(symCleanup, c.handle)
	return errors.Join(errs...)
}

// count formats a number of things.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// A MemoryType is a kind of memory.
type MemoryType int

// Memory types of the library (ucs_memory_type_t).
const (
	Host        MemoryType = 0
	CUDA        MemoryType = 1 // device memory
	CUDAManaged MemoryType = 2
)

// A Memory is memory that is registered with the network devices, which can then access it directly.
type Memory struct {
	context *Context
	handle  uintptr
	kind    MemoryType
}

// Map registers memory with the network once, for all transfers that use it (ucp_mem_map). The memory must stay valid
// until Memory.Close and must not come from the Go heap, but from the system or CUDA.
func (c *Context) Map(address unsafe.Pointer, size int, kind MemoryType) (*Memory, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	m := &Memory{context: c, kind: kind}
	p := &mapParams{mask: mapAddress | mapLength | mapKind, address: uintptr(address), length: uint64(size), kind: int32(kind)}
	what := fmt.Sprintf("%d bytes at %p", size, address)
	if err := c.library.try(symMemMap, what, c.handle, uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(&m.handle))); err != nil {
		return nil, err
	}
	c.memory = append(c.memory, m)
	return m, nil
}

// Close unregisters the memory. No transfer may use it any more.
func (m *Memory) Close() error {
	c := m.context
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.memory, m)
	if i < 0 {
		return ErrClosed
	}
	c.memory = slices.Delete(c.memory, i, i+1)
	return c.library.try(symMemUnmap, "", c.handle, m.handle)
}
