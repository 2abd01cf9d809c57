// SPDX-License-Identifier: Apache-2.0

package rtp

import "testing"

// TestTrainClosesOnce checks that closing a train twice returns an error instead of crashing. Header memory from the Go
// heap would fail this test.
func TestTrainClosesOnce(t *testing.T) {
	tr, err := newTrain(10, 2, 200, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	if tr.Close() == nil {
		t.Error("second Close succeeded")
	}
}
