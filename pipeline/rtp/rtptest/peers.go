// SPDX-License-Identifier: Apache-2.0

package rtptest

import (
	"errors"
	"fmt"
	"testing"
)

// ErrDisturbed means that the machine was too busy for a conclusive test.
var ErrDisturbed = errors.New("the machine was busy in every try")

// Right returns the number of frames of size bytes in a peer's output, and the number of those that are right according
// to the function is.
func Right(got []byte, size int, is func([]byte) bool) (all, good int) {
	for n := 0; n+size <= len(got); n += size {
		if all++; is(got[n : n+size]) {
			good++
		}
	}
	return all, good
}

// Tries calls f until it succeeds, at most three times, and returns nil or the last error, which also wraps
// ErrDisturbed if the machine has disturbed all three tries. Errors that a slow machine cannot cause must be reported
// to t by f itself.
func Tries(t testing.TB, f func() error) error {
	t.Helper()
	disturbed := true
	for try := 1; ; try++ {
		stop := WatchLateness(t)
		err := f()
		late := stop()
		if err == nil {
			return nil
		}
		t.Logf("try %d: %v; %v", try, err, late)
		disturbed = disturbed && late.Disturbs()
		switch {
		case try < 3:
		case disturbed:
			return fmt.Errorf("%w: %w", ErrDisturbed, err)
		default:
			return err
		}
	}
}

// Need ends the test if it has failed already or if one of the errors is not nil. If it has not failed and all such
// errors wrap ErrDisturbed, it is skipped; otherwise it fails.
func Need(t testing.TB, errs ...error) {
	t.Helper()
	var busy error
	for _, err := range errs {
		switch {
		case errors.Is(err, ErrDisturbed):
			busy = err
		case err != nil:
			t.Error(err)
		}
	}
	switch {
	case t.Failed():
		t.FailNow()
	case busy != nil:
		t.Log(busy)
		t.Skip("NEEDS a machine that is less busy")
	}
}
