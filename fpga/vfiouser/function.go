// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/tegracast/tegracast/fpga"
)

// ErrFunction is wrapped by the errors of New about an invalid Function.
var ErrFunction = errors.New("no PCI function")

// Function describes a PCI Express endpoint.
type Function struct {
	Vendor, Device       uint16
	SubVendor, SubDevice uint16
	Revision             uint8
	Class                uint32 // 24 bits: base class, subclass, interface

	BARs []BAR
	MSIX MSIX
	MSI  int // number of vectors: 0 for no MSI, otherwise a power of two up to 32
	Link Link

	// Line returns the level of the function's interrupt line, INTA#; true means asserted. nil: no line. Server.Raise
	// announces that the level may have risen.
	Line func() bool

	// Reset resets the logic behind the registers. It is called on a reset of the bus and on a Function Level Reset. nil:
	// nothing to do.
	Reset func()

	// Present returns false while the function is off the bus. Then reads return all ones, even from configuration space,
	// and writes are ignored. nil: always present.
	Present func() bool
}

// A BAR is a memory window.
type BAR struct {
	Index        int    // 0 to 5; a 64-bit BAR also occupies the next one
	Size         uint64 // bytes: a power of two, at least 4 KiB, and at most 2 GiB unless Bits64
	Bits64       bool
	Prefetchable bool

	// Registers handles the first Backed bytes; 0 means all, up to 4 GiB. The rest reads as zero.
	Registers fpga.Registers
	Backed    uint64
}

// MSIX says where the vector table and the pending bits are. QEMU itself keeps the contents of the table.
type MSIX struct {
	Vectors    int    // 0 for no MSI-X, otherwise up to 2048
	BAR        int    // index of the BAR that contains both
	Table, PBA uint32 // byte offsets of the vector table and of the pending bits in the BAR, multiples of 8
}

// Link is the PCI Express link. The zero value is 5 GT/s on 8 lanes.
type Link struct {
	Speed int // 1 to 5: 2.5, 5, 8, 16, 32 GT/s
	Width int // lanes: 1, 2, 4, 8 or 16
}

const (
	bars       = 6
	maxVectors = 2048 // of MSI-X
	maxMSI     = 32
)

func (f *Function) check() error {
	if f.Link == (Link{}) {
		f.Link = Link{Speed: 2, Width: 8}
	}
	if f.Link.Speed < 1 || f.Link.Speed > 5 || f.Link.Width < 1 || f.Link.Width > 16 || bits.OnesCount(uint(f.Link.Width)) != 1 {
		return fmt.Errorf("%w: a link of generation %d with %d lanes, want 1 to 5 and 1, 2, 4, 8 or 16", ErrFunction, f.Link.Speed, f.Link.Width)
	}
	if f.Vendor == 0xffff || f.Class >= 1<<24 {
		return fmt.Errorf("%w: vendor %#x, class %#x: ffff is no vendor, and a class has 24 bits", ErrFunction, f.Vendor, f.Class)
	}
	if f.MSI != 0 && (f.MSI < 1 || f.MSI > maxMSI || bits.OnesCount(uint(f.MSI)) != 1) {
		return fmt.Errorf("%w: %d MSI vectors, want 0 or a power of two up to %d", ErrFunction, f.MSI, maxMSI)
	}
	taken := map[int]bool{}
	for i := range f.BARs {
		if err := f.BARs[i].check(taken); err != nil {
			return err
		}
	}
	return f.checkMSIX()
}

func (b *BAR) check(taken map[int]bool) error {
	last, most := b.Index, uint64(2<<30)
	if b.Bits64 {
		last, most = b.Index+1, 1<<62
	}
	if b.Index < 0 || last >= bars || taken[b.Index] || taken[last] {
		return fmt.Errorf("%w: BAR %d is not there or taken; there are 6, and one of 64 bits takes two", ErrFunction, b.Index)
	}
	taken[b.Index], taken[last] = true, true
	if b.Size < pageSize || b.Size > most || bits.OnesCount64(b.Size) != 1 {
		return fmt.Errorf("%w: BAR %d of %d bytes, want a power of two from %d to %d", ErrFunction, b.Index, b.Size, pageSize, most)
	}
	if b.Backed == 0 {
		b.Backed = min(b.Size, 4<<30)
	}
	if b.Registers == nil || b.Backed > min(b.Size, 4<<30) || b.Backed%4 != 0 {
		return fmt.Errorf("%w: BAR %d: %d of %d bytes have registers, want some, and a multiple of 4 up to 4 GiB", ErrFunction, b.Index, b.Backed, b.Size)
	}
	return nil
}

func (f *Function) checkMSIX() error {
	x := f.MSIX
	if x.Vectors == 0 {
		return nil
	}
	table, pba := uint64(x.Vectors)*16, uint64(x.Vectors+63)/64*8
	b := f.bar(x.BAR)
	if x.Vectors < 0 || x.Vectors > maxVectors || b == nil || x.Table%8 != 0 || x.PBA%8 != 0 ||
		uint64(x.Table)+table > b.Size || uint64(x.PBA)+pba > b.Size {
		return fmt.Errorf("%w: %d MSI-X vectors in BAR %d at %#x and %#x: want up to %d, and both at multiples of 8 in the BAR",
			ErrFunction, x.Vectors, x.BAR, x.Table, x.PBA, maxVectors)
	}
	return nil
}

// bar returns the BAR with that index, or nil.
func (f *Function) bar(index int) *BAR {
	for i := range f.BARs {
		if f.BARs[i].Index == index {
			return &f.BARs[i]
		}
	}
	return nil
}
