// SPDX-License-Identifier: Apache-2.0

package isp

import "github.com/tegracast/tegracast/pipeline"

// Scales of the arithmetic, docs/isp.md.
const (
	linearMax = 1<<14 - 1 // white of the linear samples
	white     = White     // white of R'G'B' after the tone curve
	gainOne   = 1 << 12   // gain 1
	maxGain   = 16        // largest gain of the white balance
)

// levels holds the values of docs/isp.md §2 and §5 by channel.
type levels struct {
	mono  bool
	red   [2]int // coordinates, modulo 2, of the red samples
	mask  uint16
	shift uint8
	black [4]uint16
	light [4]int // white minus black, in 1/65536
	set   uint64 // gains for which m and n were computed, see packGains
	m     [4]uint16
	n     [4]uint8 // samples are multiplied by m/2^n
}

func newLevels(c Config, gains uint64, s pipeline.Samples) levels {
	l := levels{mono: s.Mosaic == pipeline.Mono, mask: uint16(1<<s.Bits - 1), shift: uint8(16 - s.Bits)}
	l.red = [2]int{int(s.Mosaic) % 2, int(s.Mosaic) / 2 % 2}
	for i := range l.black {
		l.black[i] = uint16(c.BlackLevel + c.Black[i])
		l.light[i] = int(l.mask-l.black[i]) << l.shift
	}
	l.setGains(gains)
	return l
}

// whites returns the value of a saturated sample by colour: red, green, blue. That of green is the mean of both channels.
func (l *levels) whites() [3]int {
	return [3]int{l.light[0], (l.light[1] + l.light[2]) / 2, l.light[3]}
}

// gainBits is the number of bits of a gain of up to 16 in units of 1/4096.
const gainBits = 17

// packGains packs gains in units of 1/4096 into one word, so that they can be exchanged without a lock. A gain of 0 is
// packed as 1.
func packGains(g Gains) (word uint64) {
	for i, gain := range [3]float64{g.R, g.G, g.B} {
		if gain == 0 {
			gain = 1
		}
		word |= uint64(fixed(gain)) << (gainBits * i)
	}
	return word
}

func (l *levels) setGains(word uint64) {
	if word == l.set {
		return
	}
	l.set = word
	for channel, color := range [4]int{0, 1, 1, 2} {
		gain := int(word >> (gainBits * color) & (1<<gainBits - 1))
		l.m[channel], l.n[channel] = factor(gain, l.light[channel])
	}
}

// factor returns m and n such that m/2^n is gain/4096 * 16383/light, with the largest m below 2^15 that n up to 29
// permits.
func factor(gain, light int) (uint16, uint8) {
	for n := 29; ; n-- {
		d := 2 * gainOne * light
		if m := (2*gain*linearMax<<n + d/2) / d; m < 1<<15 || n == 1 {
			return uint16(min(m, 1<<15-1)), uint8(n)
		}
	}
}

// channels returns the channels of the even and the odd samples of line y.
func (l *levels) channels(y int) [2]int {
	switch {
	case l.mono:
		return [2]int{Gr, Gr}
	case y&1 == l.red[1]:
		c := [2]int{R, Gr}
		return [2]int{c[l.red[0]], c[1-l.red[0]]}
	}
	c := [2]int{Gb, B}
	return [2]int{c[l.red[0]], c[1-l.red[0]]}
}

// blacks returns the arguments of blackGo for line y.
func (l *levels) blacks(y int) blackArgs {
	c := l.channels(y)
	return blackArgs{mask: l.mask, shift: uint16(l.shift), black: [2]uint16{l.black[c[0]], l.black[c[1]]}}
}

// gains returns the arguments of gainGo for line y.
func (l *levels) gains(y int) gainArgs {
	var a gainArgs
	for i, c := range l.channels(y) {
		a.m[i], a.n[i], a.half[i] = l.m[c], uint32(l.n[c]), 1<<(l.n[c]-1)
	}
	return a
}
