// SPDX-License-Identifier: Apache-2.0

package rtptest

import "testing"

// Right counts the frames of size bytes in what a peer wrote, and those of them that are one of what was sent.
func Right(got []byte, size int, is func([]byte) bool) (all, good int) {
	for n := 0; n+size <= len(got); n += size {
		if all++; is(got[n : n+size]) {
			good++
		}
	}
	return all, good
}

// Tries calls f until it succeeds, three times at most, and returns the last error.
func Tries(t testing.TB, f func() error) error {
	t.Helper()
	for try := 1; ; try++ {
		err := f()
		if err == nil || try == 3 {
			return err
		}
		t.Logf("try %d: %v", try, err)
	}
}
