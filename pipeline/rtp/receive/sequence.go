// SPDX-License-Identifier: Apache-2.0

package receive

// sequence follows the extended sequence numbers of one SSRC and counts after RFC 3550 A.1 and A.3. Duplicates are
// recognised among the last window numbers.
type sequence struct {
	bits    uint   // of the numbers: 16 in RTP, 32 with RFC 4175's extension
	limit   uint64 // a longer jump needs a second packet to be believed
	started bool
	base    uint64
	max     uint64
	unique  uint64 // received from base on
	suspect uint64 // the number that would confirm a jump; 0: none
	before  uint64 // lost before the last jump
	seen    [window / 64]uint64
}

// window is a power of two.
const window = 8192

// verdict says what a sequence number is.
type verdict uint8

const (
	inOrder   verdict = iota // the next one, or after a gap
	reordered                // after a later one
	duplicate
	jumped // so far away that it is not believed
)

func newSequence(bits uint) sequence {
	s := sequence{bits: bits, limit: 3000} // MAX_DROPOUT of RFC 3550 A.1
	if bits == 32 {
		s.limit = 1 << 20
	}
	return s
}

// update takes the number n of a packet.
func (s *sequence) update(n uint32) verdict {
	if !s.started {
		s.restart(n)
		return inOrder
	}
	ext := s.extend(n)
	switch {
	case ext > s.max && ext-s.max < s.limit:
		s.advance(ext)
		return inOrder
	case ext <= s.max && s.max-ext < window:
		if s.mark(ext) {
			return duplicate
		}
		if ext >= s.base {
			s.unique++
		}
		return reordered
	case s.suspect != 0 && ext == s.suspect:
		s.before = s.lost()
		s.restart(n)
		return inOrder
	}
	s.suspect = ext + 1
	return jumped
}

// extend is the number nearest to max that ends in n.
func (s *sequence) extend(n uint32) uint64 {
	shift := 32 - s.bits
	return s.max + uint64(int64(int32((n-uint32(s.max))<<shift)>>shift))
}

func (s *sequence) restart(n uint32) {
	ext := 1<<40 + uint64(n) // room for earlier numbers
	s.started, s.base, s.max, s.unique, s.suspect = true, ext, ext, 1, 0
	s.seen = [window / 64]uint64{}
	s.mark(ext)
}

func (s *sequence) advance(ext uint64) {
	if ext-s.max >= window {
		s.seen = [window / 64]uint64{}
	} else {
		for n := s.max + 1; n < ext; n++ {
			s.seen[n%window/64] &^= 1 << (n % 64)
		}
		s.seen[ext%window/64] &^= 1 << (ext % 64)
	}
	s.max = ext
	s.suspect = 0
	s.unique++
	s.mark(ext)
}

// mark notes a number and says whether it had been noted.
func (s *sequence) mark(ext uint64) bool {
	word, bit := &s.seen[ext%window/64], uint64(1)<<(ext%64)
	was := *word&bit != 0
	*word |= bit
	return was
}

// lost is the number of packets that are missing up to the highest one (RFC 3550 A.3).
func (s *sequence) lost() uint64 {
	if !s.started {
		return s.before
	}
	return s.before + s.expected() - s.unique
}

func (s *sequence) expected() uint64 { return s.max - s.base + 1 }
