// SPDX-License-Identifier: Apache-2.0

//go:build !arm64

package isp

import (
	"testing"

	"github.com/tegracast/tegracast/pipeline/arm64test"
)

// TestKernelTwinsOnARM64 runs the tests of kernels with the kernels for NEON.
func TestKernelTwinsOnARM64(t *testing.T) {
	arm64test.Run(t, "^(TestKernelTwins|TestColumnsTwins|TestShortWayAgainstReference|TestRealCapture|TestBands)$")
}
