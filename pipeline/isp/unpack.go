// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"encoding/binary"

	"github.com/tegracast/tegracast/pipeline"
)

// words converts a line's 8-bit or packed samples to little-endian words; docs/isp.md §1.
func words(dst, src []byte, s pipeline.Samples) {
	if s.Packed {
		s.Unpack(dst, src)
		return
	}
	for i, v := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], uint16(v))
	}
}
