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

	// The first packet that is heard may have been overtaken by others, which came before anybody listened.
	midway bool                // base is the first number that was heard, and not the first of a sender
	far    uint64              // the longest way by which a packet came after a later one
	early  [window / 64]uint64 // those of the first window numbers from base on that have come
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
		s.far = max(s.far, s.max-ext)
		if ext >= s.base {
			s.unique++
			s.note(ext)
		}
		return reordered
	case s.suspect != 0 && ext == s.suspect:
		s.before = s.missing()
		s.midway = false
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
	s.seen, s.early, s.far = [window / 64]uint64{}, [window / 64]uint64{}, 0
	s.mark(ext)
	s.note(ext)
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
	s.note(ext)
}

// note keeps that ext, from base on, has come.
func (s *sequence) note(ext uint64) {
	if n := ext - s.base; n < window {
		s.early[n/64] |= 1 << (n % 64)
	}
}

// unheard says whether the packet ext may have come before anybody listened: it is so close to the first one that was heard
// that it may have overtaken that one. Packets overtake each other by far, as seen so far; twice that is on the safe side.
func (s *sequence) unheard(ext uint64) bool { return s.midway && ext <= s.base+min(2*s.far, window-1) }

// mark notes a number and says whether it had been noted.
func (s *sequence) mark(ext uint64) bool {
	word, bit := &s.seen[ext%window/64], uint64(1)<<(ext%64)
	was := *word&bit != 0
	*word |= bit
	return was
}

// misses says whether n is the number of a packet that is missing before the highest one and would not be taken for a duplicate.
func (s *sequence) misses(n uint32) bool {
	if !s.started {
		return false
	}
	ext := s.extend(n)
	return ext >= s.base && ext <= s.max && s.max-ext < window && s.seen[ext%window/64]&(1<<(ext%64)) == 0
}

// gaps says whether misses is true of any number that was sent since somebody listens.
func (s *sequence) gaps() bool {
	if !s.started {
		return false
	}
	for ext := max(s.base, s.max-window+1); ext < s.max; ext++ {
		if !s.unheard(ext) && s.seen[ext%window/64]&(1<<(ext%64)) == 0 {
			return true
		}
	}
	return false
}

// lost is the number of packets that are missing up to the highest one (RFC 3550 A.3).
func (s *sequence) lost() uint64 {
	if !s.started {
		return s.before
	}
	return s.before + s.expected() - s.unique
}

// missing is the number of packets that are lost, without those that may have come before anybody listened.
func (s *sequence) missing() uint64 {
	lost := s.lost()
	for ext := s.base; s.started && ext <= s.max && s.unheard(ext); ext++ {
		if !s.heard(ext) {
			lost--
		}
	}
	return lost
}

// heard says whether ext, one of the first window numbers from base on, has come.
func (s *sequence) heard(ext uint64) bool {
	n := ext - s.base
	return n < window && s.early[n/64]&(1<<(n%64)) != 0
}

// cut says whether packets of a frame may have come before anybody listened. The lowest of its numbers that have come is first.
func (s *sequence) cut(first uint64) bool {
	return s.unheard(first) || s.unheard(first-1) && !s.heard(first-1)
}

func (s *sequence) expected() uint64 { return s.max - s.base + 1 }
