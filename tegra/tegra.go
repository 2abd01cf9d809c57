// SPDX-License-Identifier: Apache-2.0

package tegra

import (
	"errors"
	"fmt"
)

// PageSize is the granularity of pins in bytes on Tegra (GPUDirect RDMA 12.9 §13.4.3; on the desktop it is 64 KiB).
const PageSize = 4096

// MaxPinSize is the maximum size of a pin in bytes: nv-p2p counts pages in an int, and a single pin beyond 1 GiB is
// refused.
const MaxPinSize = 1 << 30

// MaxCoherentSize is the maximum size of a piece of coherent memory in bytes: coherent memory is for descriptors and
// the like, not for frames.
const MaxCoherentSize = 64 << 20

// DefaultDevice is the device file of the first function that the kernel module drives.
const DefaultDevice = "/dev/tegra_p2p0"

// MaxPins is the maximum number of pins and pieces of coherent memory of one open function (TP_MAX_PINS of tegra_p2p,
// also reported by GET_INFO). One more fails with ENOSPC.
const MaxPins = 1024

// Direction says in which direction the device may move data through a pin. A pin is mapped once, for one direction.
type Direction int

const (
	ToDevice   Direction = 1 + iota // the device reads
	FromDevice                      // the device writes
)

func (d Direction) String() string {
	switch d {
	case ToDevice:
		return "to-device"
	case FromDevice:
		return "from-device"
	}
	return fmt.Sprintf("Direction(%d)", int(d))
}

// CacheAttr is the cache attribute that memory was allocated with. A pin that expects a different one is refused, since
// mapping memory with the wrong attribute is undefined (GPUDirect RDMA 12.9 §13.4.3).
type CacheAttr int

const (
	WriteBack     CacheAttr = iota // cudaHostAllocDefault
	WriteCombined                  // cudaHostAllocWriteCombined
)

func (a CacheAttr) String() string {
	if a == WriteCombined {
		return "write-combined"
	}
	return "write-back"
}

// Errors that callers distinguish. They are wrapped with details.
var (
	ErrAlignment  = errors.New("not a multiple of 4 KiB")
	ErrSize       = errors.New("pin size out of range")
	ErrRange      = errors.New("address range wraps or is not mapped")
	ErrDirection  = errors.New("unknown direction")
	ErrOverlap    = errors.New("range is pinned already")
	ErrRevoked    = errors.New("pin was revoked: the device cannot reach its memory any more")
	ErrUnpinned   = errors.New("pin was unpinned already")
	ErrCacheAttr  = errors.New("cache attribute differs from the allocation's")
	ErrFenced     = errors.New("device is fenced: reset its engine and resume")
	ErrGeneration = errors.New("fence generation is not the current one: another revocation came in between")
	ErrClosed     = errors.New("device is closed")
	ErrNoDevice   = errors.New("cannot open the device of kernel module tegra_p2p")
	ErrVersion    = errors.New("kernel module tegra_p2p does not fit this program")
	ErrInUse      = errors.New("the PCI Express function is in use")
	ErrGone       = errors.New("the PCI Express function has gone")
)

// Pinner pins memory for one PCI Express function. *Device implements it with the kernel module, *tegrasim.Sim within
// the process.
type Pinner interface {
	// Pin pins size bytes at the virtual address addr and maps them for the device. Both must be multiples of PageSize.
	Pin(addr uintptr, size int, dir Direction, attr CacheAttr) (*Pin, error)
	// AllocCoherent allocates memory of which CPU and device have the same view, for descriptors, write-backs and
	// trailers. size is 1 to MaxCoherentSize bytes and is rounded up to a multiple of PageSize.
	AllocCoherent(size int) (*Coherent, error)
}

// Fencer is implemented by pinners whose function is fenced before its first use and after a revocation: nothing can be
// pinned or allocated until its engine has been reset and Resume was called with the generation of the fence.
type Fencer interface {
	// Fenced reports whether the function is fenced, and returns the generation of the fence.
	Fenced() (generation uint64, fenced bool)
	// Resume ends the fence. The error wraps ErrGeneration if generation is no longer the current one.
	Resume(generation uint64) error
	// Fence fences the function. Pins stay. It must be called before memory is freed that the engine may still use,
	// since the bus addresses are reused at once.
	Fence() error
}

// A Segment is a contiguous range of bus addresses (IOVAs).
type Segment struct {
	IOVA uint64
	Len  int // bytes
}
