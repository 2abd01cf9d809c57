// SPDX-License-Identifier: Apache-2.0

package receive

import "testing"

// TestVerifierAfterStall checks that a receiver that has stood still, and finds many frames in one socket and their
// checksums in the other, matches them.
func TestVerifierAfterStall(t *testing.T) {
	const n = 100
	for name, first := range map[string]bool{"frames first": true, "checksums first": false} {
		var v verifier
		feed := func(frames bool) {
			for i := range uint32(n) {
				if c := (check{timestamp: i, crc: i, bytes: 1}); frames {
					v.frame(c)
				} else {
					v.checksum(c)
				}
			}
		}
		feed(first)
		feed(!first)
		if v.finish(); v.matched != n || v.unverified != 0 || v.mismatched != 0 {
			t.Errorf("%s: %d matched, %d mismatched, %d not verified", name, v.matched, v.mismatched, v.unverified)
		}
	}
}
