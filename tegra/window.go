// SPDX-License-Identifier: Apache-2.0

package tegra

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// A Window is a mapped BAR. It is accessed only by 32-bit atomic loads and stores. Reads beyond its end, at an address
// that is not a multiple of 4, or after Close return all ones, and such writes have no effect, as if nothing on the bus
// had answered. The same applies after the function has gone: the module then maps a page of ones.
type Window struct {
	Index int // of the BAR, 0 to 5
	Size  int // bytes

	mu    sync.RWMutex // held for writing while the memory is being unmapped
	bytes []byte
}

// maxWindow is the size that 32-bit offsets can reach.
const maxWindow = math.MaxUint32 + 1

// BARs returns the function's BARs that can be mapped. A BAR of more than 4 GiB is left out: it is memory, not
// registers. The slice must not be changed.
func (d *Device) BARs() []*Window { return d.bars }

func (d *Device) mapBARs() error {
	const count = 6
	for i := range count {
		r, err := d.drv.region(i)
		if err != nil {
			return d.wrap(err, "BAR %d", i)
		}
		if r.Size == 0 || r.Size > maxWindow || r.Flags&uapi.RegionMmap == 0 {
			continue
		}
		b, err := d.drv.mmap(r.MmapOffset, int(r.Size))
		if err != nil {
			return fmt.Errorf("%s: mapping the %d bytes of BAR %d: %w", d.path, r.Size, i, err)
		}
		d.bars = append(d.bars, &Window{Index: i, Size: int(r.Size), bytes: b})
	}
	return nil
}

// at returns a pointer to the register, or nil if there is none. The caller must hold mu.
func (w *Window) at(off uint32) *uint32 {
	if off%4 != 0 || uint64(off)+4 > uint64(len(w.bytes)) {
		return nil
	}
	return (*uint32)(unsafe.Pointer(&w.bytes[off]))
}

// Read32 reads the register at a byte offset.
func (w *Window) Read32(off uint32) uint32 {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if p := w.at(off); p != nil {
		return atomic.LoadUint32(p)
	}
	return math.MaxUint32
}

// Write32 writes the register at a byte offset. The device sees everything that the CPU wrote to memory before, by the
// time the register changes: the store has release order, which on arm64 also holds for device memory.
func (w *Window) Write32(off, v uint32) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if p := w.at(off); p != nil {
		atomic.StoreUint32(p, v)
	}
}

func (w *Window) unmap() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.bytes
	w.bytes = nil
	return unix.Munmap(b)
}
