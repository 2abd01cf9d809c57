// SPDX-License-Identifier: Apache-2.0

//go:build !arm64

package crc

import (
	"testing"

	"github.com/tegracast/tegracast/pipeline/arm64test"
)

// TestSameOnARM64 runs the tests with the three streams, on a processor that has their instructions.
func TestSameOnARM64(t *testing.T) {
	if testing.Short() {
		t.Skip("SHORT: it takes several seconds: make test runs it")
	}
	arm64test.Run(t, "^(TestSame|TestReadsNothingElse|TestAllocatesNothing|TestFast|FuzzSame)$")
}
