// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"strings"

	"github.com/tegracast/tegracast/pipeline"
)

// A rawFormat is a sampling that is sent by RFC 4175. The pixel format in memory has the pixel groups of RFC 4175 §4.3,
// so that payloads are parts of lines.
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

// rawOf returns the format for a pixel format; 0 means UYVY. ok is false if there is none.
func rawOf(p pipeline.PixelFormat) (f rawFormat, ok bool) {
	for _, f := range rawFormats {
		if f.pixel == p || p == 0 {
			return f, true
		}
	}
	return rawFormat{}, false
}

// rawPixels lists the pixel formats, for errors.
func rawPixels() string {
	var names []string
	for _, f := range rawFormats {
		names = append(names, f.pixel.String())
	}
	return strings.Join(names, ", ")
}

// rawSamplings lists the samplings, for errors.
func rawSamplings() string {
	var names []string
	for _, f := range rawFormats {
		names = append(names, f.sampling+" of "+f.depth+" bits")
	}
	return strings.Join(names, ", ")
}

// cutLine splits a line of line bytes into the smallest number of packets of at most limit bytes. All packets have size
// bytes, which is a multiple of group, the number of bytes in a pixel group; only the last may be shorter.
func cutLine(line, limit, group int) (packets, size int) {
	groups, most := line/group, limit/group
	packets = (groups + most - 1) / most
	each := (groups + packets - 1) / packets
	return (groups + each - 1) / each, each * group
}

// colorParameters returns colorimetry and range in the notation of ST 2110-20:2017 §7.
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
