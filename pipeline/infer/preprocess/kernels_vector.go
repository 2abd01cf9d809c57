// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package preprocess

// zipped calls a kernel for as many bytes as it takes, and zipGo for the rest.
func zipped(kernel func(dst, even, odd *byte, n int), dst, even, odd []byte) {
	n := len(even) &^ 15
	if n > 0 {
		kernel(&dst[:2*n][0], &even[0], &odd[:n][0], n)
	}
	zipGo(dst[2*n:], even[n:], odd[n:])
}

// converted calls a kernel for as many values as it takes, and one in Go for the rest.
func converted(kernel func(dst *byte, src *float32, n int), rest func([]byte, []float32), dst []byte, src []float32) {
	n := len(src) &^ 7
	if n > 0 {
		kernel(&dst[0], &src[0], n)
	}
	rest(dst[len(dst)/len(src)*n:], src[n:])
}
