// SPDX-License-Identifier: Apache-2.0

package isp

import "golang.org/x/sys/cpu"

// The vector versions of scale.go. A count n is a number of results.

// halfAVX2 is halfGo for a multiple of 16 pixels.
//
//go:noescape
func halfAVX2(even, green, odd, a, b *uint16, n int)

// halfMonoAVX2 is halfMonoGo for a multiple of 16 pixels.
//
//go:noescape
func halfMonoAVX2(dst, a, b *uint16, n int)

// quarterAVX2 is quarterGo for a multiple of 8 pixels.
//
//go:noescape
func quarterAVX2(even, green, odd *uint16, lines *[4]*uint16, n int)

// quarterMonoAVX2 is quarterMonoGo for a multiple of 8 pixels.
//
//go:noescape
func quarterMonoAVX2(dst *uint16, lines *[4]*uint16, n int)

func halfRow(even, green, odd, a, b []uint16) {
	if cpu.X86.HasAVX2 {
		halfAVX2(&even[0], &green[0], &odd[0], &a[0], &b[0], roundUp16(len(even)))
		return
	}
	halfGo(even, green, odd, a, b)
}

func halfMonoRow(dst, a, b []uint16) {
	if cpu.X86.HasAVX2 {
		halfMonoAVX2(&dst[0], &a[0], &b[0], roundUp16(len(dst)))
		return
	}
	halfMonoGo(dst, a, b)
}

func quarterRow(even, green, odd []uint16, lines *[4]line) {
	if cpu.X86.HasAVX2 {
		at := [4]*uint16{&lines[0][margin], &lines[1][margin], &lines[2][margin], &lines[3][margin]}
		quarterAVX2(&even[0], &green[0], &odd[0], &at, roundUp16(len(even)))
		return
	}
	quarterGo(even, green, odd, lines)
}

func quarterMonoRow(dst []uint16, lines *[4]line) {
	if cpu.X86.HasAVX2 {
		at := [4]*uint16{&lines[0][margin], &lines[1][margin], &lines[2][margin], &lines[3][margin]}
		quarterMonoAVX2(&dst[0], &at, roundUp16(len(dst)))
		return
	}
	quarterMonoGo(dst, lines)
}
