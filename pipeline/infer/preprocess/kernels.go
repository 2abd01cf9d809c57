// SPDX-License-Identifier: Apache-2.0

package preprocess

import (
	"math"
	"unsafe"
)

// kernels are the work on one line. The functions whose names end in Go define what those in vector instructions compute,
// to the last bit.
type kernels struct {
	sample func(out [3]*float32, a, b []byte, groups []taps, k *colours, weight float32)
	zip    func(dst, even, odd []byte)
	half   func(dst []byte, src []float32)
	bytes  func(dst []byte, src []float32)
}

// plain are the kernels for other processors.
func plain() kernels { return kernels{sampleGo, zipGo, halfGo, bytesGo} }

// sampleGo makes eight pixels for each of groups out of the lines a and b, with the weight of b, and writes them to out,
// for which nil is no channel.
func sampleGo(out [3]*float32, a, b []byte, groups []taps, k *colours, weight float32) {
	for g := range groups {
		t := &groups[g]
		for i := range group {
			var v [3]float32
			for channel := range v {
				upper, lower := t.channel(a, i, channel), t.channel(b, i, channel)
				v[channel] = float32(upper) + float32(float32(lower-upper)*weight)
			}
			for c, to := range out {
				if to == nil {
					continue
				}
				f := &k.factor[c]
				s := float32(v[0]*f[0][0]) + float32(v[1]*f[1][0])
				s = float32(s+float32(v[2]*f[2][0])) + f[3][0]
				*(*float32)(unsafe.Add(unsafe.Pointer(to), 4*(group*g+i))) = min(max(s, k.bounds[c][0][0]), k.bounds[c][1][0])
			}
		}
	}
}

// channel returns the weighted sum of a channel's two samples, for pixel i of the eight.
func (t *taps) channel(line []byte, i, channel int) (sum int32) {
	line = line[t.offset[i]:][:tapBytes]
	for k := range 2 {
		l := lane(channel, k)
		if m := t.mask[slot(i)][2*l]; m != nothing {
			sum += int32(line[m]) * int32(t.weight[slot(i)][l])
		}
	}
	return sum
}

// zipGo writes the bytes of even and odd alternately.
func zipGo(dst, even, odd []byte) {
	odd, dst = odd[:len(even)], dst[:2*len(even)]
	for i, e := range even {
		dst[2*i], dst[2*i+1] = e, odd[i]
	}
}

// halfGo converts to float16, rounded to nearest, ties to even. The values are float16's or zero, normal or subnormal, not
// more than maxHalf.
func halfGo(dst []byte, src []float32) {
	for i, v := range src {
		bits := math.Float32bits(v)
		sign, size := bits>>16&0x8000, bits&0x7fffffff
		if size < 0x38800000 { // subnormal: adding ½ rounds it
			size = math.Float32bits(math.Float32frombits(size)+0.5) - 0x3f000000
		} else {
			size = (size - 0x38000000 + 0xfff + size>>13&1) >> 13
		}
		h := sign | size
		dst[2*i], dst[2*i+1] = byte(h), byte(h>>8)
	}
}

// bytesGo rounds values from 0 to 255 to nearest, ties to even.
func bytesGo(dst []byte, src []float32) {
	for i, v := range src {
		dst[i] = byte(math.RoundToEven(float64(v)))
	}
}
