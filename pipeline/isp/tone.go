// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"math"
	"math/big"
)

// A tone is a tone curve; docs/isp.md §8.
type tone struct {
	table  [linearMax + 1]uint16 // maps a linear sample to R', G' or B', 0 to white
	bytes  *byteCurve            // straight segments of the curve for vector kernels that make bytes; nil if it has none, like words and signed
	words  *wordCurve
	signed *signedCurve // for vector kernels that do not make bytes
}

func newTone(c Config) *tone {
	t := &tone{}
	switch hundredths := int64(math.Floor(c.Gamma*100 + 0.5)); {
	case len(c.Curve) > 0:
		curveTable(&t.table, c.Curve)
	case hundredths > 0:
		for i := range t.table {
			t.table[i] = exactCode(i, hundredths)
		}
	default:
		s := newSegments(func(i int) uint16 { return exactCode(i, 0) })
		t.bytes, t.words, t.signed = newByteCurve(s), newWordCurve(s), newSignedCurve(s)
		for i := range t.table {
			t.table[i] = s.at(i)
		}
	}
	return t
}

// numSegments is the number of straight segments of the BT.709 curve. It is small enough for table look-ups within
// registers.
const numSegments = 64

// segments are the straight segments of a curve, each from one knot to the next.
type segments struct {
	base  [numSegments]uint16
	slope [numSegments]int16 // difference to the next knot
}

// segmentOf returns the segment that contains sample i, its start, and the binary logarithm of its length.
func segmentOf(i int) (j, begin, log int) {
	switch {
	case i < 1<<10:
		return i >> 6, i &^ 63, 6
	case i < 1<<12:
		return i>>7 + 8, i &^ 127, 7
	}
	return i>>9 + 32, i &^ 511, 9
}

func newSegments(curve func(i int) uint16) *segments {
	s := &segments{}
	for i := 0; i <= linearMax; {
		j, _, log := segmentOf(i)
		s.base[j] = curve(i)
		if i += 1 << log; i <= linearMax {
			s.slope[j] = int16(curve(i)) - int16(s.base[j])
		} else { // the last sample, not the knot after it, is white
			s.slope[j] = int16((int(curve(linearMax)-s.base[j])*1024 + 511) / 1022)
		}
	}
	return s
}

// at returns the value of the curve for sample i.
func (s *segments) at(i int) uint16 {
	j, begin, log := segmentOf(i)
	return uint16(int(s.base[j]) + (int(s.slope[j])*(i-begin)+1<<(log-1))>>log)
}

// exactCode returns the value of the transfer function at i, rounded to the nearest code.
func exactCode(i int, hundredths int64) uint16 {
	// Floating point determines the code, unless the value is so close to a boundary that only integers can decide.
	v := white*transfer(float64(i)/linearMax, hundredths) + 0.5
	k := math.Floor(v)
	if near := math.Round(v); k > 0 && math.Abs(v-near) < 1e-6 {
		k = near
		if !reaches(int64(i), int64(near), hundredths) {
			k--
		}
	}
	return uint16(min(k, white))
}

// transfer is the transfer function in floating point: that of BT.709 §1.2 if hundredths is 0, otherwise
// L^(100/hundredths).
func transfer(l float64, hundredths int64) float64 {
	switch {
	case hundredths != 0:
		return math.Pow(l, 100/float64(hundredths))
	case l < 0.018:
		return 4.5 * l
	}
	return 1.099*math.Pow(l, 0.45) - 0.099
}

// reaches reports whether the transfer function is at least (k-1/2)/white for i/linearMax.
func reaches(i, k, hundredths int64) bool {
	if hundredths != 0 { // (i/linearMax)^100 >= ((2k-1)/2white)^hundredths
		g := new(big.Int).GCD(nil, nil, big.NewInt(hundredths), big.NewInt(100)).Int64()
		return cmpPowers(i, linearMax, 100/g, 2*k-1, 2*white, hundredths/g) >= 0
	}
	if 1000*i < 18*linearMax { // V = 4.5 L below L = 0.018
		return 9*white*i >= (2*k-1)*linearMax
	}
	// 1.099 L^0.45 - 0.099 >= (2k-1)/2white, that is, (i/linearMax)^9 >= (p/q)^20
	p, q := (2*k-1)*1000+2*white*99, int64(2*white*1099)
	return cmpPowers(i, linearMax, 9, p, q, 20) >= 0
}

// cmpPowers compares (a/b)^m with (p/q)^n: it returns -1, 0 or 1 if the former is less, equal or greater.
func cmpPowers(a, b, m, p, q, n int64) int {
	pow := func(x, y int64) *big.Int { return new(big.Int).Exp(big.NewInt(x), big.NewInt(y), nil) }
	left := pow(a, m)
	right := pow(p, n)
	return left.Mul(left, pow(q, n)).Cmp(right.Mul(right, pow(b, m)))
}

// curveTable fills t with the curve that joins equally spaced knots by straight lines.
func curveTable(t *[linearMax + 1]uint16, knots []int) {
	for i := range t {
		at := i * (len(knots) - 1)
		j, f := at/linearMax, at%linearMax
		next := knots[min(j+1, len(knots)-1)]
		t[i] = uint16((knots[j]*(linearMax-f) + next*f + linearMax/2) / linearMax)
	}
}
