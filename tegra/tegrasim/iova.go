// SPDX-License-Identifier: Apache-2.0

package tegrasim

import (
	"slices"

	"github.com/tegracast/tegracast/tegra"
)

// firstIOVA is the lowest bus address that is given out.
const firstIOVA = 1 << 32

// maxFree is how many free ranges are kept; the oldest are never given out again.
const maxFree = 4096

// space is a range of bus addresses.
type space struct{ iova, size uint64 }

func (r space) contains(iova uint64) bool { return iova >= r.iova && iova-r.iova < r.size }

// spaces gives out bus addresses: those that were given back last come first, as the kernel's allocator has it. So an engine
// that uses an address after its pin has ended reaches the memory of whoever has pinned since.
type spaces struct {
	next uint64  // never given out yet
	free []space // the last one comes first
}

// take returns room for n bytes with so many bytes behind them, at least one page, that are nobody's, so that no access runs from
// one segment into another.
func (s *spaces) take(n, gap int) space {
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

// give takes a range back.
func (s *spaces) give(r space) {
	if len(s.free) == maxFree {
		s.free = slices.Delete(s.free, 0, 1)
	}
	s.free = append(s.free, r)
}
