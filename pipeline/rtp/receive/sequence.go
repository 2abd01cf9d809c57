// SPDX-License-Identifier: Apache-2.0

package receive

// sequence tracks the extended sequence numbers of one SSRC and counts according to RFC 3550 A.1 and A.3. It recognises
// duplicates among the last window numbers.
type sequence struct {
	bits    uint   // size of the numbers: 16 in RTP, 32 with the extension of RFC 4175
	limit   uint64 // a jump of at least this size must be confirmed by a second packet
	started bool
	base    uint64
	max     uint64
	unique  uint64 // number of packets received from base on
	suspect uint64 // number that would confirm a jump; 0: none
	before  uint64 // packets lost before the last jump, and of earlier senders
	seen    [window / 64]uint64

	// The first packet received may have been overtaken by later ones, which arrived before reception began.
	midway bool                // base is the first number received, not the first number of a sender
	far    uint64              // the furthest that a packet was behind a later one
	early  [window / 64]uint64 // the received ones among the first window numbers from base on
}

// window is the number of sequence numbers, up to the highest one, among which duplicates are recognised. It must be a
// power of two.
const window = 8192

// verdict classifies a sequence number.
type verdict uint8

const (
	inOrder   verdict = iota // the next one, or one after a gap
	reordered                // arrived after a later one
	duplicate
	jumped // implausibly far away
)

func newSequence(bits uint) sequence {
	s := sequence{bits: bits, limit: 3000} // MAX_DROPOUT of RFC 3550 A.1
	if bits == 32 {
		s.limit = 1 << 20
	}
	return s
}

// update processes the number n of a packet, and classifies it.
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

// extend returns the extended number nearest to max whose lower bits are n.
func (s *sequence) extend(n uint32) uint64 {
	shift := 32 - s.bits
	return s.max + uint64(int64(int32((n-uint32(s.max))<<shift)>>shift))
}

func (s *sequence) restart(n uint32) {
	ext := 1<<40 + uint64(n) // leaves room for earlier numbers
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

// note records that ext, which is at least base, was received.
func (s *sequence) note(ext uint64) {
	if n := ext - s.base; n < window {
		s.early[n/64] |= 1 << (n % 64)
	}
}

// unheard reports whether the packet ext may have arrived before reception began, that is, whether it follows the first
// packet received so closely that it may have overtaken it. far is the greatest distance seen so far; twice that is a
// safe limit.
func (s *sequence) unheard(ext uint64) bool { return s.midway && ext <= s.base+min(2*s.far, window-1) }

// mark records a number and reports whether it was already recorded.
func (s *sequence) mark(ext uint64) bool {
	word, bit := &s.seen[ext%window/64], uint64(1)<<(ext%64)
	was := *word&bit != 0
	*word |= bit
	return was
}

// misses reports whether n is the number of a packet that is missing before the highest one, and that would not be
// taken for a duplicate.
func (s *sequence) misses(n uint32) bool {
	if !s.started {
		return false
	}
	ext := s.extend(n)
	return ext >= s.base && ext <= s.max && s.max-ext < window && s.seen[ext%window/64]&(1<<(ext%64)) == 0
}

// gaps reports whether misses is true for any number sent since reception began.
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

// lost returns s.before plus the number of packets missing up to the highest sequence number (RFC 3550 A.3).
func (s *sequence) lost() uint64 {
	if !s.started {
		return s.before
	}
	return s.before + s.expected() - s.unique
}

// missing returns the number of lost packets, without those that may have arrived before reception began.
func (s *sequence) missing() uint64 {
	lost := s.lost()
	for ext := s.base; s.started && ext <= s.max && s.unheard(ext); ext++ {
		if !s.heard(ext) {
			lost--
		}
	}
	return lost
}

// heard reports whether ext, one of the first window numbers from base on, was received.
func (s *sequence) heard(ext uint64) bool {
	n := ext - s.base
	return n < window && s.early[n/64]&(1<<(n%64)) != 0
}

// cut reports whether packets of a frame may have arrived before reception began. first is the lowest number of the
// frame that was received.
func (s *sequence) cut(first uint64) bool {
	return s.unheard(first) || s.unheard(first-1) && !s.heard(first-1)
}

func (s *sequence) expected() uint64 { return s.max - s.base + 1 }
