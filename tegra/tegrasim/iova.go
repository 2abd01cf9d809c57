// SPDX-License-Identifier: Apache-2.0

package tegrasim

import (
	"slices"

	"github.com/tegracast/tegracast/tegra"
)

// firstIOVA is the lowest bus address that is given out.
const firstIOVA = 1 << 32

// maxFree is the maximum number of free ranges that are kept; beyond it, the oldest are never given out again.
const maxFree = 4096

type space struct{ iova, size uint64 }

func (r space) contains(iova uint64) bool { return iova >= r.iova && iova-r.iova < r.size }

// spaces gives out bus addresses: those that were returned last are reused first, as by the kernel's allocator. So an
// engine that uses an address after its pin has ended accesses the memory of a later pin.
type spaces struct {
	next uint64  // lowest address that was never given out
	free []space // the most recently returned one is used first
}

// allocate returns room for n bytes, followed by a gap of at least one page that belongs to nobody, so that no access
// runs from one segment into another. Addresses that were never given out get a gap of gap bytes.
func (s *spaces) allocate(n, gap int) space {
	need := uint64(n + tegra.PageSize)
	for i := len(s.free) - 1; i >= 0; i-- {
		r := &s.free[i]
		if r.size < need {
			continue
		}
		if rest := r.size - need; rest >= 2*tegra.PageSize {
			got := space{r.iova, need}
			r.iova, r.size = r.iova+need, rest
			return got
		}
		got := *r
		s.free = slices.Delete(s.free, i, i+1)
		return got
	}
	got := space{s.next, uint64(n + gap)}
	s.next += got.size
	return got
}

func (s *spaces) release(r space) {
	if len(s.free) == maxFree {
		s.free = slices.Delete(s.free, 0, 1)
	}
	s.free = append(s.free, r)
}
