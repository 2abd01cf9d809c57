// SPDX-License-Identifier: Apache-2.0

package rtp

import "testing"

// TestTrainsAreOffHeap would fail if header memory came from the heap: closing twice must be an error, not a crash.
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
