// SPDX-License-Identifier: Apache-2.0

package export

import (
	"encoding/binary"

	"github.com/tegracast/tegracast/pipeline"
)

// unpack reads as many of a sensor's samples from a line as dst has elements.
func unpack(dst []uint16, line []byte, s pipeline.Samples) {
	switch {
	case s.Packed && s.Bits == 10: // MIPI CSI-2 §11.4.4: four upper bytes, and a byte with the lower two bits of each
		for x := range dst {
			group := line[x/4*5:]
			dst[x] = uint16(group[x%4])<<2 | uint16(group[4])>>(2*(x%4))&3
		}
	case s.Packed: // RAW12, §11.4.5
		for x := range dst {
			group := line[x/2*3:]
			dst[x] = uint16(group[x%2])<<4 | uint16(group[2])>>(4*(x%2))&15
		}
	case s.Bits == 8:
		for x := range dst {
			dst[x] = uint16(line[x])
		}
	default:
		for x := range dst {
			dst[x] = binary.LittleEndian.Uint16(line[2*x:])
		}
	}
}
