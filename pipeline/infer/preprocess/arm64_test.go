// SPDX-License-Identifier: Apache-2.0

//go:build !arm64

package preprocess

import (
	"testing"

	"github.com/tegracast/tegracast/pipeline/arm64test"
)

// TestTwinsOnARM64 runs tests with the kernels for NEON.
func TestTwinsOnARM64(t *testing.T) {
	if testing.Short() {
		t.Skip("SHORT: it takes several seconds: make test runs it")
	}
	arm64test.Run(t, "^(TestTwins|TestCopies|TestProcessAllocatesNothing)$")
}
