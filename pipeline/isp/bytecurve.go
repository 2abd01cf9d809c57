// SPDX-License-Identifier: Apache-2.0

package isp

// A byteCurve is the BT.709 curve from linear samples to bytes, (T[v] + 8) >> 4, for vector kernels that work on bytes.
// In a segment j of length 2^a, in 1/16 of a byte and modulo 256,
//
//	T[v] + 8 = 16·high[j] + low[j] + rise[j]·x/2^15 rounded, with x = v·2^(15-a) as a signed word
//
// x is relative to the segment's start in every second segment and to its end in the others; low compensates for that.
type byteCurve struct {
	high, low, rise [numSegments]byte
	shuffled        [numSegments / 16][3][16]byte // high, low and rise; groups of sixteen, XORed with the previous one
	factors         [numSegments]byte             // 2^(13-a), by segment
	ranges          [16]byte                      // the factors by v >> 10, which also determines a segment's length
}

func newByteCurve(s *segments) *byteCurve {
	c := &byteCurve{}
	for i := 0; i <= linearMax; {
		j, _, log := segmentOf(i)
		base := s.base[j] + 8
		c.high[j], c.low[j], c.rise[j] = byte(base>>4), byte(base&15), byte(s.slope[j])
		if i>>log&1 == 1 {
			c.low[j] += c.rise[j]
		}
		c.factors[j] = 1 << (13 - log)
		c.ranges[i>>10] = c.factors[j]
		i += 1 << log
	}
	for j := range numSegments {
		for k, t := range [3]*[numSegments]byte{&c.high, &c.low, &c.rise} {
			v := t[j]
			if j >= 16 {
				v ^= t[j-16]
			}
			c.shuffled[j/16][k][j%16] = v
		}
	}
	return c
}

// A wordCurve is the curve of byteCurve for vector kernels that work on words and use four times the sample. In segment
// j, modulo 2^16 and with fractions discarded,
//
//	T[v] + 8 = (base[j] + 4v·rise[j]/2^16)/2
type wordCurve struct{ base, rise [numSegments]uint16 }

func newWordCurve(s *segments) *wordCurve {
	c := &wordCurve{}
	for i := 0; i <= linearMax; {
		j, begin, log := segmentOf(i)
		c.base[j] = uint16(2*(int(s.base[j])+8-int(s.slope[j])*(begin>>log)) + 1)
		c.rise[j] = uint16(s.slope[j]) << (15 - log)
		i += 1 << log
	}
	return c
}

// A signedCurve is the curve for vector kernels that multiply signed words: the lower and upper bytes of base, then of rise.
// In segment j, modulo 2^16 and with 4v as a signed word,
//
//	T[v] = base[j] + 4v·rise[j]/2^15 rounded
type signedCurve [4][numSegments]byte

func newSignedCurve(s *segments) *signedCurve {
	c := &signedCurve{}
	for i := 0; i <= linearMax; {
		j, begin, log := segmentOf(i)
		slope := int(s.slope[j])
		base, rise := int(s.base[j])-slope*(int(int16(4*begin))/4>>log), slope<<(13-log)
		for k, v := range [4]int{base, base >> 8, rise, rise >> 8} {
			c[k][j] = byte(v)
		}
		i += 1 << log
	}
	return c
}
