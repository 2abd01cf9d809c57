// SPDX-License-Identifier: Apache-2.0

package preprocess

import "golang.org/x/sys/cpu"

// The vector versions of kernels.go for AVX2, in kernels_amd64.s.

// sampleAVX2 is sampleGo for n groups, of which there is at least one. If out1 is nil, it makes one channel, otherwise three.
//
//go:noescape
func sampleAVX2(out0, out1, out2 *float32, a, b *byte, groups *taps, n int, k *colours, weight float32)

// zipAVX2 is zipGo for n bytes of each source, a multiple of 16.
//
//go:noescape
func zipAVX2(dst, even, odd *byte, n int)

// halfAVX2 is halfGo for n values, a multiple of 8.
//
//go:noescape
func halfAVX2(dst *byte, src *float32, n int)

// bytesAVX2 is bytesGo for n values, a multiple of 8.
//
//go:noescape
func bytesAVX2(dst *byte, src *float32, n int)

// lane returns the place of a channel's sample of the first or second neighbour: VPMADDWD adds neighbouring lanes.
func lane(channel, neighbour int) int { return 2*channel + neighbour }

func fastest() kernels {
	if !cpu.X86.HasAVX2 { // every processor with AVX2 has F16C, too
		return plain()
	}
	return kernels{
		func(out [3]*float32, a, b []byte, groups []taps, k *colours, weight float32) {
			sampleAVX2(out[0], out[1], out[2], &a[0], &b[0], &groups[0], len(groups), k, weight)
		},
		func(dst, even, odd []byte) { zipped(zipAVX2, dst, even, odd) },
		func(dst []byte, src []float32) { converted(halfAVX2, halfGo, dst, src) },
		func(dst []byte, src []float32) { converted(bytesAVX2, bytesGo, dst, src) },
	}
}
