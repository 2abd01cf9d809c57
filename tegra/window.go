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

// A Window is a mapped BAR. It is accessed by 32-bit atomic loads and stores alone; an access beyond its end, to an
// address that is no multiple of 4, or after Close reads all ones and writes nothing, as one that nobody on the bus
// answers. So it does when the function has gone: the module maps a page of ones then.
type Window struct {
	Index int // of the BAR, 0 to 5
	Size  int // bytes

	mu    sync.RWMutex // held for writing when the mapping goes
	bytes []byte
}

// maxWindow is what 32-bit offsets reach.
const maxWindow = math.MaxUint32 + 1

// BARs are the function's BARs that can be mapped. One of more than 4 GiB is left out: it is memory, not registers.
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

// at is the register's address, nil when there is none. The caller holds mu.
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

// Write32 writes the register at a byte offset. What the CPU wrote to memory before is seen by the device before the
// register changes: the store has release order, which on arm64 holds for device memory, too.
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
