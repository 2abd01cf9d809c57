// SPDX-License-Identifier: Apache-2.0

package cuda

import "testing"

// TestReciprocal checks that dividing a position in a line by a packet's payload is exact, also near multiples.
func TestReciprocal(t *testing.T) {
	for n := 1; n < 1<<17; n++ {
		m := reciprocal(n)
		for k := 0; k < 1<<17; k += n * (1 + 1<<17/n/8) {
			for _, a := range []int{k, k + 1, k + n - 1} {
				if a < 1<<17 && int(uint64(a)*m>>40) != a/n {
					t.Fatalf("%d / %d is %d", a, n, uint64(a)*m>>40)
				}
			}
		}
	}
}
