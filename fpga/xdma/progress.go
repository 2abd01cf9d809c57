// SPDX-License-Identifier: Apache-2.0

package xdma

import "github.com/tegracast/tegracast/fpga"

// progress is how much of the oldest frame Next has told of.
type progress struct {
	slice int // bytes; 0: it tells of complete frames only
	count int // descriptors whose write-backs are right, from the first on
	bytes int // of these
}

func (p *progress) reset() { p.count, p.bytes = 0, 0 }

// advance looks how much more of frame f has come since the last look, and says whether it is a slice or more. As for a whole
// frame, a write-back counts when the counter of completed descriptors confirms it, which has just been read. A write-back
// that does not fit ends the progress: the end of the frame says what is wrong.
func (r *Ring) advance(f frame, s *slot) bool {
	if r.told.slice == 0 {
		return false
	}
	confirmed := int(int32(r.reached - (f.end - uint32(s.chain.n+1))))
	before := r.told.bytes / r.told.slice
	for k := r.told.count; k < min(confirmed, s.chain.n); k++ {
		length, eop, ok := written(s.writeBacks[k*writeBackSize:])
		if !ok || eop || length != s.lengths[k] {
			break
		}
		r.told.count, r.told.bytes = k+1, r.told.bytes+int(length)
	}
	return r.told.bytes/r.told.slice > before
}

// bytes is how many bytes of pixels the slot has, but for those that a tail takes.
func (s *slot) bytes() (n int) {
	for _, length := range s.lengths {
		n += int(length)
	}
	return n
}

// sliced cuts segments at the multiples of slice bytes from the first one's begin on; 0: nowhere.
func sliced(segments []fpga.Segment, slice int) (list []fpga.Segment) {
	if slice == 0 {
		return segments
	}
	at := 0
	for _, s := range segments {
		for s.Len > 0 {
			n := min(s.Len, slice-at%slice)
			list = append(list, fpga.Segment{Addr: s.Addr, Len: n})
			at, s.Addr, s.Len = at+n, s.Addr+uint64(n), s.Len-n
		}
	}
	return list
}
