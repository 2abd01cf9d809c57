// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"testing"

	"golang.org/x/sys/cpu"
)

// TestOlderProcessors runs tests of kernels and a part of the real capture without features that this processor may have:
// VBMI of AVX-512, and all of AVX-512.
func TestOlderProcessors(t *testing.T) {
	saved := cpu.X86
	defer func() { cpu.X86 = saved }()
	if !saved.HasAVX2 {
		t.Skip("NEEDS a processor with AVX2")
	}
	for _, without := range []struct {
		name string
		flag *bool
	}{{"VBMI", &cpu.X86.HasAVX512VBMI}, {"AVX-512", &cpu.X86.HasAVX512BW}} {
		*without.flag = false
		t.Run("without "+without.name, func(t *testing.T) {
			TestKernelTwins(t)
			TestToneOfEverySample(t)
			TestUYVYTwins(t)
			TestColumnsTwins(t)
			TestRealCapture(t)
		})
	}
}
