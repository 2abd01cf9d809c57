// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"
)

// guardedWords returns n words in guarded memory, each 0, limit or between them.
func guardedWords(t testing.TB, rnd *rand.Rand, n, limit int) []uint16 {
	w := unsafe.Slice((*uint16)(unsafe.Pointer(&guarded(t, 2*n)[0])), n)
	for x := range w {
		w[x] = []uint16{0, uint16(limit), uint16(rnd.IntN(limit + 1))}[min(2, rnd.IntN(6))]
	}
	return w
}

// guardedLine returns a line of n pixels in guarded memory.
func guardedLine(t testing.TB, rnd *rand.Rand, n int) line {
	return guardedWords(t, rnd, len(newLine(n)), linearMax)
}

// TestScaleTwins compares the kernels of scale.go with those in plain Go, for all numbers of pixels and with the extreme
// values.
func TestScaleTwins(t *testing.T) {
	for n := 1; n <= 300; n++ {
		rnd := rand.New(rand.NewPCG(uint64(n), 61))
		var a, b [3]line
		for i := range a {
			a[i], b[i] = guardedLine(t, rnd, n), newLine(n)
		}
		var lines [4]line
		same := func(name string, count int) {
			t.Helper()
			for i := range count {
				if got, want := a[i].at(0, n), b[i].at(0, n); !slices.Equal(got, want) {
					t.Fatalf("%s of %d pixels, result %d: %v, in plain Go %v", name, n, i, got, want)
				}
			}
		}
		for i := range lines {
			lines[i] = guardedLine(t, rnd, 2*n)
		}
		p, q := lines[0].at(0, 2*n), lines[1].at(0, 2*n)
		halfRow(a[0].at(0, n), a[1].at(0, n), a[2].at(0, n), p, q)
		halfGo(b[0].at(0, n), b[1].at(0, n), b[2].at(0, n), p, q)
		same("half size", 3)
		halfMonoRow(a[0].at(0, n), p, q)
		halfMonoGo(b[0].at(0, n), p, q)
		same("half size, monochrome", 1)
		for i := range lines {
			lines[i] = guardedLine(t, rnd, 4*n)
		}
		quarterRow(a[0].at(0, n), a[1].at(0, n), a[2].at(0, n), &lines)
		quarterGo(b[0].at(0, n), b[1].at(0, n), b[2].at(0, n), &lines)
		same("quarter size", 3)
		quarterMonoRow(a[0].at(0, n), &lines)
		quarterMonoGo(b[0].at(0, n), &lines)
		same("quarter size, monochrome", 1)
	}
}
