// SPDX-License-Identifier: Apache-2.0

package preprocess

// The vector versions of kernels.go for NEON, which every arm64 has, in kernels_arm64.s.

// sampleNEON is sampleGo for n groups, of which there is at least one. If out1 is nil, it makes one channel, otherwise three.
//
//go:noescape
func sampleNEON(out0, out1, out2 *float32, a, b *byte, groups *taps, n int, k *colours, weight float32)

// zipNEON is zipGo for n bytes of each source, a multiple of 16.
//
//go:noescape
func zipNEON(dst, even, odd *byte, n int)

// halfNEON is halfGo for n values, a multiple of 8.
//
//go:noescape
func halfNEON(dst *byte, src *float32, n int)

// bytesNEON is bytesGo for n values, a multiple of 8.
//
//go:noescape
func bytesNEON(dst *byte, src *float32, n int)

// lane returns the place of a channel's sample of the first or second neighbour: SMULL and SMLAL2 add halves of a register.
func lane(channel, neighbour int) int { return channel + 4*neighbour }

func fastest() kernels {
	return kernels{
		func(out [3]*float32, a, b []byte, groups []taps, k *colours, weight float32) {
			sampleNEON(out[0], out[1], out[2], &a[0], &b[0], &groups[0], len(groups), k, weight)
		},
		func(dst, even, odd []byte) { zipped(zipNEON, dst, even, odd) },
		func(dst []byte, src []float32) { converted(halfNEON, halfGo, dst, src) },
		func(dst []byte, src []float32) { converted(bytesNEON, bytesGo, dst, src) },
	}
}
