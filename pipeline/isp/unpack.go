// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"encoding/binary"

	"github.com/tegracast/tegracast/pipeline"
)

// words makes little-endian words of a line's samples of 8 bits or packed; docs/isp.md §1.
func words(dst, src []byte, s pipeline.Samples) {
	if s.Packed {
		s.Unpack(dst, src)
		return
	}
	for i, v := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], uint16(v))
	}
}
