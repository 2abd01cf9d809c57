// SPDX-License-Identifier: Apache-2.0

package xdma

import "github.com/tegracast/tegracast/fpga"

// progress is the part of the oldest frame that Next has reported.
type progress struct {
	slice int // bytes; 0: only complete frames are reported
	count int // descriptors, counted from the first, with correct write-backs
	bytes int // bytes in these descriptors
}

func (p *progress) reset() { p.count, p.bytes = 0, 0 }

// advance checks how much more of frame f has arrived, and reports whether that is at least one more slice. As for a
// whole frame, a write-back counts only if confirmed by the counter of completed descriptors, which has just been read.
// A wrong write-back ends the progress; the cause is reported at the end of the frame.
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

// bytes returns the number of pixel bytes of the slot, without those that a tail takes.
func (s *slot) bytes() (n int) {
	for _, length := range s.lengths {
		n += int(length)
	}
	return n
}

// sliced splits segments at multiples of slice bytes, counted from the start of the first one; 0: no splits.
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
