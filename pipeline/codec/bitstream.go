// SPDX-License-Identifier: Apache-2.0

package codec

import "unsafe"

// A bitstream holds the SFrameBSInfo of a picture, of any release.
type bitstream struct {
	info     frameInfo[measuredLayerInfo]
	measured bool // otherwise info is a frameInfo[layerInfo]
}

func (b *bitstream) plain() *frameInfo[layerInfo] {
	return (*frameInfo[layerInfo])(unsafe.Pointer(&b.info))
}

func (b *bitstream) frameType() int32 {
	if b.measured {
		return b.info.frameType
	}
	return b.plain().frameType
}

// units returns the data of layer i, which begins with a start code, and the lengths of its units. Both are in C
// memory.
func (b *bitstream) units(i int) (data []byte, lengths []int32) {
	l := &b.plain().layers[i]
	if b.measured {
		l = &b.info.layers[i].layerInfo
	}
	lengths = unsafe.Slice(*(**int32)(unsafe.Pointer(&l.lengths)), l.units)
	size := 0
	for _, n := range lengths {
		size += int(n)
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&l.data)), size), lengths
}
