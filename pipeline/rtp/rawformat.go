// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"strings"

	"github.com/tegracast/tegracast/pipeline"
)

// A rawFormat is a sampling that is sent as RFC 4175 has it. The pixel groups of RFC 4175 §4.3 are those of the pixel
// format in memory, so that packets are pieces of lines.
type rawFormat struct {
	pixel    pipeline.PixelFormat
	sampling string // RFC 4175 §6.1
	depth    string
}

var rawFormats = []rawFormat{
	{pipeline.UYVY, "YCbCr-4:2:2", "8"},
	{pipeline.UYVP, "YCbCr-4:2:2", "10"},
	{pipeline.RGB24, "RGB", "8"},
}

// rawOf finds the format of a pixel format; 0 is UYVY.
func rawOf(p pipeline.PixelFormat) (f rawFormat, ok bool) {
	for _, f := range rawFormats {
		if f.pixel == p || p == 0 {
			return f, true
		}
	}
	return rawFormat{}, false
}

// rawPixels lists the pixel formats for an error.
func rawPixels() string {
	var names []string
	for _, f := range rawFormats {
		names = append(names, f.pixel.String())
	}
	return strings.Join(names, ", ")
}

// rawSamplings lists the samplings for an error.
func rawSamplings() string {
	var names []string
	for _, f := range rawFormats {
		names = append(names, f.sampling+" of "+f.depth+" bits")
	}
	return strings.Join(names, ", ")
}

// cutLine cuts a line of the given bytes into the fewest packets of at most limit bytes, all multiples of a pixel group
// of group bytes and as equal as can be: only the last may be shorter.
func cutLine(line, limit, group int) (packets, size int) {
	groups, most := line/group, limit/group
	packets = (groups + most - 1) / most
	each := (groups + packets - 1) / packets
	return (groups + each - 1) / each, each * group
}

// colorimetry and range as ST 2110-20:2017 §7 writes them.
func colorParameters(c pipeline.Colorimetry) (colorimetry, rangeName string) {
	switch c {
	case pipeline.BT601Limited:
		return "BT601", "NARROW"
	case pipeline.BT601Full:
		return "BT601", "FULL"
	case pipeline.BT709Full:
		return "BT709", "FULL"
	}
	return "BT709", "NARROW"
}
