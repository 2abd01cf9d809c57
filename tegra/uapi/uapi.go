// SPDX-License-Identifier: Apache-2.0

package uapi

// APIVersion is the version of the interface that this package implements. Info.APIVersion must be the same.
const APIVersion = 2

// IOC is the type of the calls. They are _IO(IOC, n): the size of a structure is in its first field rather than in the
// call.
const IOC = 0xbd

// The calls. Each comment names the call's structure.
const (
	CallGetInfo   = IOC<<8 + iota // Info
	CallGetRegion                 // Region
	CallPin                       // Pin
	CallQuery                     // Query
	CallPut                       // Put
	CallAlloc                     // Alloc
	CallSetEvent                  // Event
	CallSetHalt                   // Halt
	CallControl                   // Control
)

// Info describes the device and its limits.
type Info struct {
	Argsz       uint32
	Flags       uint32 // out: InfoIOMMU and the like
	APIVersion  uint32 // out
	State       uint32 // out: StateLive, StateFenced or StateGone
	FenceGen    uint64 // out: counts the fences; ControlResume must name it
	Vendor      uint16 // out: PCI IDs, like the next three
	Device      uint16
	Subvendor   uint16
	Subdevice   uint16
	DMABits     uint32 // out: width of the DMA mask
	NIRQs       uint32 // out: vectors for SetEvent: of MSI-X or MSI, or 1 for the legacy line
	PinAlign    uint32 // out: a pin's address and size must be multiples of this number of bytes
	MaxPins     uint32 // out: maximum number of live pins and allocations of an open file
	MaxPinBytes uint64 // out: maximum size of a single pin
	PinnedBytes uint64 // out: currently pinned through this open file
	Error       uint32 // out: reason for the latest error event, ErrorLink and the like; 0: none, or not reported
	Errors      uint32 // out: number of error events of the function
}

// Bits of Info.Flags.
const (
	InfoIOMMU    = 1 << iota // there is a translating IOMMU in front of memory
	InfoStrict               // the IOMMU drops a mapping at once
	InfoUnsafe               // no such protection: whoever has the device open can access all memory
	InfoCoherent             // DMA is coherent with the CPU's caches
	InfoNVP2P                // pins use nv-p2p, otherwise pin_user_pages
	InfoFLR                  // the function can be reset: ControlReset works

	InfoNVP2PBuilt   // nv-p2p is compiled in
	InfoNVP2PPresent // a provider of nv-p2p was loaded before the module
	InfoNVP2PForeign // that provider was the desktop driver, whose nv-p2p is incompatible: rejected

	InfoINTX        // the function's only interrupt is the legacy line: masked when raised, until ControlUnmask
	InfoIsolatedMSI // the function cannot raise the interrupts of others by writing their messages
)

// Info.Error: why the function has lost its state or its protection. It is fenced until it is started again.
const (
	ErrorNone     = iota
	ErrorLink     // its link has reported an error; its registers may have kept their values
	ErrorFatal    // the error was fatal, and the bus was reset
	ErrorReset    // somebody has reset the function
	ErrorSuspend  // the machine was suspended
	ErrorShutdown // the machine is shutting down or starting another kernel
	ErrorExposed  // another function has joined its IOMMU group
	ErrorUnplug   // the function has gone, or its driver was unbound
)

// Info.State.
const (
	StateLive   = iota
	StateFenced // no Pin or Alloc until ControlResume, for instance after a revocation
	StateGone
)

// Region describes a BAR.
type Region struct {
	Argsz      uint32
	Flags      uint32 // out: RegionMmap
	Index      uint32 // in: BAR 0 to 5
	Pad        uint32
	Size       uint64 // out: bytes, 0 for a BAR that does not exist
	MmapOffset uint64 // out: offset for mmap
}

// Region.Flags.
const (
	RegionMmap = 1 << iota // it can be mapped, uncached
)

// Segment is a contiguous range of bus addresses.
type Segment struct {
	IOVA uint64
	Len  uint64 // bytes
}

// Pin is memory of the caller that the function may access until Put, revocation or close.
type Pin struct {
	Argsz      uint32
	Flags      uint32 // in: PinToDevice and the like
	VA         uint64 // in: address, a multiple of Info.PinAlign
	Size       uint64 // in: bytes, a multiple of Info.PinAlign
	Cookie     uint64 // in: Query returns it
	Segs       uint64 // in: address of Segments to fill
	SegCap     uint32 // in: number of Segments that fit at Segs
	NSegs      uint32 // out: number of Segments, 0 if it is revoked already; Query returns those that did not fit
	Handle     uint32 // out
	Attr       uint32 // out: AttrWB, AttrWC
	MmapOffset uint64 // out: offset for mmap of a driver's pages with the attribute and rights of the caller's mapping
}

// Pin.Flags.
const (
	PinToDevice   = 1 << iota // the function reads the memory
	PinFromDevice             // the function writes it; both may be set
	PinExpectWB               // EMEDIUMTYPE unless the memory is write-back
	PinExpectWC               // EMEDIUMTYPE unless the memory is write-combined
)

// Pin.Attr.
const (
	AttrWB = iota
	AttrWC
)

// Query asks for the state of a pin.
type Query struct {
	Argsz    uint32
	Flags    uint32
	Handle   uint32 // in
	State    uint32 // out: PinLive or PinRevoked
	Cookie   uint64 // out
	Segs     uint64 // in: address of Segments to fill
	SegCap   uint32 // in: number of Segments that fit at Segs
	SegFirst uint32 // in: number of the first segment requested, counted from 0
	NSegs    uint32 // out: number of segments of the pin; 0 after it was revoked
	Reason   uint32 // out: ReasonNone and the like
	FenceGen uint64 // out: generation of the fence that the pin's revocation raised
}

// Query.State.
const (
	PinLive = iota
	PinRevoked
)

// Query.Reason.
const (
	ReasonNone       = iota
	ReasonInvalidate // the mapping was changed: munmap, mremap, mprotect, madvise, fork
	ReasonMMExit     // the address space no longer exists
	ReasonUnplug     // the function has gone, or its driver was unbound
)

// Put ends a pin or an allocation.
type Put struct {
	Argsz  uint32
	Flags  uint32
	Handle uint32 // in
	Pad    uint32
}

// Alloc is coherent memory that the kernel allocates for DMA. The caller can map it at MmapOffset.
type Alloc struct {
	Argsz      uint32
	Flags      uint32
	Size       uint64 // in: bytes, a multiple of Info.PinAlign
	IOVA       uint64 // out: bus address
	MmapOffset uint64 // out: offset for mmap
	Handle     uint32 // out: for Put
	Pad        uint32
}

// Event sets the eventfd that is signalled for an event.
type Event struct {
	Argsz   uint32
	Flags   uint32
	Kind    uint32 // in: EventMSI and the like
	Index   uint32 // in: the vector for EventMSI, otherwise 0
	Eventfd int32  // in: -1 removes the current one
	Pad     uint32
}

// Event.Kind.
const (
	EventMSI    = iota // an interrupt vector was raised
	EventRevoke        // a pin of this open file was revoked
	EventError         // the function has lost its state or its protection, or has gone: Info.Error
)

// HaltOp is a register access of a halt list.
type HaltOp struct {
	Op     uint32 // HaltW32 and the like
	BAR    uint32
	Offset uint64 // bytes
	Value  uint64 // to write, or to compare under Mask
	Mask   uint64 // HaltPoll32: wait until (register & Mask) == Value
}

// HaltOp.Op.
const (
	HaltW32    = iota
	HaltW64    // as one access
	HaltPoll32 // all polls of a list together wait for at most 2 ms
)

// HaltOps is the maximum number of operations in a halt list.
const HaltOps = 16

// Halt is a list of register accesses that stop the engine when a pin is revoked.
type Halt struct {
	Argsz uint32
	Flags uint32
	Ops   uint64 // in: address of N HaltOps
	N     uint32 // in: 0 clears the list
	Pad   uint32
}

// Control operates on the fence, the function's reset or the legacy line.
type Control struct {
	Argsz uint32
	Flags uint32
	Op    uint32 // in: ControlResume and the like
	Pad   uint32
	// in, for ControlResume: the generation of the fence that the caller has seen, or the call fails with EAGAIN;
	// out, except for ControlUnmask: the current generation
	FenceGen uint64
}

// Control.Op.
const (
	ControlResume = iota // the engine has been reset: Pin works again
	ControlFence         // raise the fence, which forbids Pin
	ControlReset         // reset the function (FLR); it stays fenced
	ControlUnmask        // unmask the legacy line; it is signalled at once if it is still raised
)
