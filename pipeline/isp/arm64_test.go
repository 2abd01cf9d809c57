// SPDX-License-Identifier: Apache-2.0

//go:build !arm64

package isp

import (
	"testing"

	"github.com/tegracast/tegracast/pipeline/arm64test"
)

// TestKernelTwinsOnARM64 runs the tests of kernels with those for NEON.
func TestKernelTwinsOnARM64(t *testing.T) {
	if testing.Short() {
		t.Skip("SHORT: it takes several seconds: make test runs it")
	}
	arm64test.Run(t, "^(TestKernelTwins|TestToneOfEverySample|TestUYVYTwins|TestScaleTwins|TestShortWayAgainstReference|TestRealCapture|TestBands)$")
}
