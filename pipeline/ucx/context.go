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
)

// Config says how a context is opened.
type Config struct {
	Library string // name or path of libucp; "": LibraryName
}

// A Context is UCX in this process, with the devices that UCX_NET_DEVICES and UCX_TLS allow. There may be several.
type Context struct {
	library *library
	handle  uintptr
	ipv6    bool // the library's TCP uses IPv6, and else IPv4

	mu      sync.Mutex
	closed  bool
	workers []*Worker
	memory  []*Memory
}

// Open opens libucp and makes a context, with the settings that the environment has (UCX_*; `ucx_info -c -f` lists them). An error
// wraps ErrNoLibrary if there is no such library.
func Open(cfg Config) (*Context, error) {
	if cfg.Library == "" {
		cfg.Library = LibraryName
	}
	l, err := load(cfg.Library)
	if err != nil {
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

// Release returns the release of the library, such as 1.13.1.
func (c *Context) Release() string { return c.library.release }

// Close ends the context. What is open of it is closed, and the error wraps ErrOpen and names it.
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

// count says how many there are.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// A MemoryType says whose memory it is.
type MemoryType int

// The types of memory that the library knows (ucs_memory_type_t).
const (
	Host        MemoryType = 0
	CUDA        MemoryType = 1 // device memory
	CUDAManaged MemoryType = 2
)

// Memory is known to the network devices, which then read and write it themselves.
type Memory struct {
	context *Context
	handle  uintptr
	kind    MemoryType
}

// Map makes memory known to the network, once for all its transfers (ucp_mem_map). The memory must stay until Memory.Close, and is
// not Go's: it comes from the system or CUDA.
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

// Close makes the memory unknown to the network. No transfer may use it any more.
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
