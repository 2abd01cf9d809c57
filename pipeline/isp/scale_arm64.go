// SPDX-License-Identifier: Apache-2.0

package isp

// The vector versions of scale.go. A count n is a number of results and a multiple of 8.

//go:noescape
func halfNEON(even, green, odd, a, b *uint16, n int)

//go:noescape
func halfMonoNEON(dst, a, b *uint16, n int)

//go:noescape
func quarterNEON(even, green, odd *uint16, lines *[4]*uint16, n int)

//go:noescape
func quarterMonoNEON(dst *uint16, lines *[4]*uint16, n int)

func halfRow(even, green, odd, a, b []uint16) {
	halfNEON(&even[0], &green[0], &odd[0], &a[0], &b[0], roundUp16(len(even)))
}

func halfMonoRow(dst, a, b []uint16) { halfMonoNEON(&dst[0], &a[0], &b[0], roundUp16(len(dst))) }

func quarterRow(even, green, odd []uint16, lines *[4]line) {
	at := [4]*uint16{&lines[0][margin], &lines[1][margin], &lines[2][margin], &lines[3][margin]}
	quarterNEON(&even[0], &green[0], &odd[0], &at, roundUp16(len(even)))
}

func quarterMonoRow(dst []uint16, lines *[4]line) {
	at := [4]*uint16{&lines[0][margin], &lines[1][margin], &lines[2][margin], &lines[3][margin]}
	quarterMonoNEON(&dst[0], &at, roundUp16(len(dst)))
}
