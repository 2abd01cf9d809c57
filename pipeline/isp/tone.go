package isp

import (
	"math"
	"math/big"
)

// toneTable maps a linear sample to R', G' or B' of 0 to white; docs/isp.md §8.
func toneTable(c Config) *[linearMax + 1]uint16 {
	t := new([linearMax + 1]uint16)
	if len(c.Curve) > 0 {
		curveTable(t, c.Curve)
		return t
	}
	h := int64(math.Floor(c.Gamma*100 + 0.5))
	for i := range t {
		// Floating point finds the code, unless the value is so near a border that only integers can tell.
		v := white*transfer(float64(i)/linearMax, h) + 0.5
		k := math.Floor(v)
		if near := math.Round(v); k > 0 && math.Abs(v-near) < 1e-6 {
			k = near
			if !reaches(int64(i), int64(near), h) {
				k--
			}
		}
		t[i] = uint16(min(k, white))
	}
	return t
}

// transfer is the transfer function in floating point: BT.709 §1.2, or L^(100/hundredths).
func transfer(l float64, hundredths int64) float64 {
	switch {
	case hundredths != 0:
		return math.Pow(l, 100/float64(hundredths))
	case l < 0.018:
		return 4.5 * l
	}
	return 1.099*math.Pow(l, 0.45) - 0.099
}

// reaches says whether the transfer function gives at least (k-1/2)/white for i/linearMax.
func reaches(i, k, hundredths int64) bool {
	if hundredths != 0 { // (i/linearMax)^100 >= ((2k-1)/2white)^hundredths
		g := new(big.Int).GCD(nil, nil, big.NewInt(hundredths), big.NewInt(100)).Int64()
		return cmpPowers(i, linearMax, 100/g, 2*k-1, 2*white, hundredths/g) >= 0
	}
	if 1000*i < 18*linearMax { // V = 4.5 L below L = 0.018
		return 9*white*i >= (2*k-1)*linearMax
	}
	// 1.099 L^0.45 - 0.099 >= (2k-1)/2white, that is (i/linearMax)^9 >= (p/q)^20
	p, q := (2*k-1)*1000+2*white*99, int64(2*white*1099)
	return cmpPowers(i, linearMax, 9, p, q, 20) >= 0
}

// cmpPowers compares (a/b)^m with (p/q)^n.
func cmpPowers(a, b, m, p, q, n int64) int {
	pow := func(x, y int64) *big.Int { return new(big.Int).Exp(big.NewInt(x), big.NewInt(y), nil) }
	left := pow(a, m)
	right := pow(p, n)
	return left.Mul(left, pow(q, n)).Cmp(right.Mul(right, pow(b, m)))
}

// curveTable joins equally spaced knots by lines.
func curveTable(t *[linearMax + 1]uint16, knots []int) {
	for i := range t {
		at := i * (len(knots) - 1)
		j, f := at/linearMax, at%linearMax
		next := knots[min(j+1, len(knots)-1)]
		t[i] = uint16((knots[j]*(linearMax-f) + next*f + linearMax/2) / linearMax)
	}
}
