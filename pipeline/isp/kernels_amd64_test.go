package isp

import (
	"testing"

	"golang.org/x/sys/cpu"
)

// TestKernelTwinsAVX2 runs TestKernelTwins, TestColumnsTwins and a part of the real capture as on a processor without AVX-512.
func TestKernelTwinsAVX2(t *testing.T) {
	saved := cpu.X86
	defer func() { cpu.X86 = saved }()
	if !saved.HasAVX2 {
		t.Skip("NEEDS a processor with AVX2")
	}
	cpu.X86.HasAVX512BW, cpu.X86.HasAVX512VBMI = false, false
	TestKernelTwins(t)
	TestColumnsTwins(t)
	TestRealCapture(t)
}
