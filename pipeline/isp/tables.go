package isp

import (
	"math"
	"math/big"
	"sort"
)

// Scales of the arithmetic; docs/isp.md §2 and §3.
const (
	sensorMax = 1<<10 - 1 // white of a 10 bit sensor
	linearMax = 1<<14 - 1 // white of the linear samples: the sum of four of them and a rounding 2 fits in 16 bits
	gainOne   = 1 << 12   // gain 1
	maxGain   = 16
)

// linearTable maps a sensor word of any value to the linear sample: black level, white balance and scale to linearMax.
// It is as long as an uint16 reaches, so that looking up needs neither mask nor bounds check.
func linearTable(black, gain int) *[1 << 16]uint16 {
	t := new([1 << 16]uint16)
	d := (sensorMax - black) * gainOne
	for word := range t {
		light := max(word&sensorMax-black, 0)
		t[word] = uint16(min((2*light*gain*linearMax+d)/(2*d), linearMax))
	}
	return t
}

// gammaTable maps a linear sample to R', G' or B' of 0 to 255. Code k begins at the first sample whose transfer
// function, times 255, is at least k-1/2; that comparison is made between integers, so the table is exact.
func gammaTable(gamma float64) *[1 << 16]uint8 {
	reaches := reaches709
	if gamma != 0 {
		reaches = reachesPower(int64(math.Floor(gamma*100 + 0.5)))
	}
	t := new([1 << 16]uint8)
	from := linearMax + 1
	for k := 255; k > 0; k-- {
		to := from
		from = sort.Search(linearMax, func(i int) bool { return reaches(int64(i), int64(k)) })
		for i := from; i < to; i++ {
			t[i] = uint8(k)
		}
	}
	for i := linearMax + 1; i < len(t); i++ {
		t[i] = 255
	}
	return t
}

// reaches709 says whether BT.709 §1.2 gives at least (k-1/2)/255 for i/linearMax.
func reaches709(i, k int64) bool {
	if 1000*i < 18*linearMax { // V = 4.5 L below L = 0.018
		return 9*255*i >= (2*k-1)*linearMax
	}
	// 1.099 L^0.45 - 0.099 >= (2k-1)/510, that is (i/linearMax)^9 >= (p/q)^20
	p, q := (2*k-1)*1000+510*99, int64(510*1099)
	return cmpPowers(i, linearMax, 9, p, q, 20) >= 0
}

// reachesPower does the same for V = L^(100/hundredths), that is (i/linearMax)^100 >= ((2k-1)/510)^hundredths.
func reachesPower(hundredths int64) func(i, k int64) bool {
	g := new(big.Int).GCD(nil, nil, big.NewInt(hundredths), big.NewInt(100)).Int64()
	return func(i, k int64) bool {
		return cmpPowers(i, linearMax, 100/g, 2*k-1, 510, hundredths/g) >= 0
	}
}

// cmpPowers compares (a/b)^m with (p/q)^n.
func cmpPowers(a, b, m, p, q, n int64) int {
	pow := func(x, y int64) *big.Int { return new(big.Int).Exp(big.NewInt(x), big.NewInt(y), nil) }
	left := pow(a, m)
	right := pow(p, n)
	return left.Mul(left, pow(q, n)).Cmp(right.Mul(right, pow(b, m)))
}
