// SPDX-License-Identifier: Apache-2.0

package rtptest

import (
	"errors"
	"fmt"
	"testing"
)

// ErrDisturbed means that the machine was too busy for a test to find anything out.
var ErrDisturbed = errors.New("the machine was busy in every try")

// Right counts the frames of size bytes in what a peer wrote, and those of them that are one of what was sent.
func Right(got []byte, size int, is func([]byte) bool) (all, good int) {
	for n := 0; n+size <= len(got); n += size {
		if all++; is(got[n : n+size]) {
			good++
		}
	}
	return all, good
}

// Tries calls f until it succeeds, three times at most, and returns the last error: with ErrDisturbed if the machine has disturbed all
// three. What no slow machine causes, f reports to t itself.
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

// Need ends a test that has failed with one of these errors. It skips the test if the machine was too busy for it.
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
