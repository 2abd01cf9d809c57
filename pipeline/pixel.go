// SPDX-License-Identifier: Apache-2.0

package pipeline

// A PixelFormat is the V4L2 FourCC of a pixel layout in memory.
type PixelFormat uint32

// Sensor samples: Bayer mosaics, named after the first two samples of the first two lines, and monochrome. Samples of
// more than 8 bits are stored in little-endian 16-bit words whose upper bits are zero. Formats whose names end in P are
// packed like RAW10 (four pixels in five bytes) and RAW12 (two pixels in three bytes) in MIPI CSI-2 §11.4.
const (
	RGGB8   PixelFormat = 'R' | 'G'<<8 | 'G'<<16 | 'B'<<24
	GRBG8   PixelFormat = 'G' | 'R'<<8 | 'B'<<16 | 'G'<<24
	GBRG8   PixelFormat = 'G' | 'B'<<8 | 'R'<<16 | 'G'<<24
	BGGR8   PixelFormat = 'B' | 'A'<<8 | '8'<<16 | '1'<<24
	Grey    PixelFormat = 'G' | 'R'<<8 | 'E'<<16 | 'Y'<<24 // also used for pictures: luma alone
	RGGB10  PixelFormat = 'R' | 'G'<<8 | '1'<<16 | '0'<<24
	GRBG10  PixelFormat = 'B' | 'A'<<8 | '1'<<16 | '0'<<24
	GBRG10  PixelFormat = 'G' | 'B'<<8 | '1'<<16 | '0'<<24
	BGGR10  PixelFormat = 'B' | 'G'<<8 | '1'<<16 | '0'<<24
	Mono10  PixelFormat = 'Y' | '1'<<8 | '0'<<16 | ' '<<24
	RGGB12  PixelFormat = 'R' | 'G'<<8 | '1'<<16 | '2'<<24
	GRBG12  PixelFormat = 'B' | 'A'<<8 | '1'<<16 | '2'<<24
	GBRG12  PixelFormat = 'G' | 'B'<<8 | '1'<<16 | '2'<<24
	BGGR12  PixelFormat = 'B' | 'G'<<8 | '1'<<16 | '2'<<24
	Mono12  PixelFormat = 'Y' | '1'<<8 | '2'<<16 | ' '<<24
	RGGB14  PixelFormat = 'R' | 'G'<<8 | '1'<<16 | '4'<<24
	GRBG14  PixelFormat = 'G' | 'R'<<8 | '1'<<16 | '4'<<24
	GBRG14  PixelFormat = 'G' | 'B'<<8 | '1'<<16 | '4'<<24
	BGGR14  PixelFormat = 'B' | 'G'<<8 | '1'<<16 | '4'<<24
	Mono14  PixelFormat = 'Y' | '1'<<8 | '4'<<16 | ' '<<24
	RGGB16  PixelFormat = 'R' | 'G'<<8 | '1'<<16 | '6'<<24
	GRBG16  PixelFormat = 'G' | 'R'<<8 | '1'<<16 | '6'<<24
	GBRG16  PixelFormat = 'G' | 'B'<<8 | '1'<<16 | '6'<<24
	BGGR16  PixelFormat = 'B' | 'Y'<<8 | 'R'<<16 | '2'<<24
	Mono16  PixelFormat = 'Y' | '1'<<8 | '6'<<16 | ' '<<24
	RGGB10P PixelFormat = 'p' | 'R'<<8 | 'A'<<16 | 'A'<<24
	GRBG10P PixelFormat = 'p' | 'g'<<8 | 'A'<<16 | 'A'<<24
	GBRG10P PixelFormat = 'p' | 'G'<<8 | 'A'<<16 | 'A'<<24
	BGGR10P PixelFormat = 'p' | 'B'<<8 | 'A'<<16 | 'A'<<24
	Mono10P PixelFormat = 'Y' | '1'<<8 | '0'<<16 | 'P'<<24
	RGGB12P PixelFormat = 'p' | 'R'<<8 | 'C'<<16 | 'C'<<24
	GRBG12P PixelFormat = 'p' | 'g'<<8 | 'C'<<16 | 'C'<<24
	GBRG12P PixelFormat = 'p' | 'G'<<8 | 'C'<<16 | 'C'<<24
	BGGR12P PixelFormat = 'p' | 'B'<<8 | 'C'<<16 | 'C'<<24
	Mono12P PixelFormat = 'Y' | '1'<<8 | '2'<<16 | 'P'<<24
)

// Picture formats.
const (
	UYVY  PixelFormat = 'U' | 'Y'<<8 | 'V'<<16 | 'Y'<<24 // 4:2:2, 8 bits, Cb Y0 Cr Y1
	UYVP  PixelFormat = 'U' | 'Y'<<8 | 'V'<<16 | 'P'<<24 // 4:2:2, 10 bits: the 5-byte pixel groups of RFC 4175 §4.3, Cb Y0 Cr Y1 from the highest bit down
	RGB24 PixelFormat = 'R' | 'G'<<8 | 'B'<<16 | '3'<<24 // R'G'B', 8 bits each
	I420  PixelFormat = 'Y' | 'U'<<8 | '1'<<16 | '2'<<24 // 4:2:0, 8 bits, planes Y, Cb, Cr; chroma planes have half the stride
	NV12  PixelFormat = 'N' | 'V'<<8 | '1'<<16 | '2'<<24 // 4:2:0, 8 bits, plane Y, plane of Cb Cr pairs with the same stride
)

// MJPEG means that each frame is a JPEG file, whose length Frame.Bytes has. Format.Size is the maximum length. Huffman
// tables may be absent, as in Motion JPEG; they are then those of ITU-T T.81 Annex K.3.
const MJPEG PixelFormat = 'M' | 'J'<<8 | 'P'<<16 | 'G'<<24

func (p PixelFormat) String() string {
	if p == 0 {
		return "none"
	}
	return string([]byte{byte(p), byte(p >> 8), byte(p >> 16), byte(p >> 24)})
}

// A Mosaic is the arrangement of a sensor's colour filters.
type Mosaic uint8

// The mosaics. The letters of the first four are the colours of the samples (x,y) = (0,0), (1,0), (0,1), (1,1).
const (
	RGGB Mosaic = iota
	GRBG
	GBRG
	BGGR
	Mono // no colour filters
)

// Samples describes the layout of a sensor's samples in memory.
type Samples struct {
	Mosaic Mosaic
	Bits   int  // significant bits: 8, 10, 12, 14 or 16
	Packed bool // packed as in MIPI CSI-2; otherwise in bytes (8 bits) or little-endian 16-bit words
}

// sensorFormats returns the sensor formats by number of bits, then by mosaic. The last two rows are the packed formats
// of 10 and 12 bits.
func sensorFormats() [7][5]PixelFormat {
	return [...][5]PixelFormat{
		{RGGB8, GRBG8, GBRG8, BGGR8, Grey},
		{RGGB10, GRBG10, GBRG10, BGGR10, Mono10},
		{RGGB12, GRBG12, GBRG12, BGGR12, Mono12},
		{RGGB14, GRBG14, GBRG14, BGGR14, Mono14},
		{RGGB16, GRBG16, GBRG16, BGGR16, Mono16},
		{RGGB10P, GRBG10P, GBRG10P, BGGR10P, Mono10P},
		{RGGB12P, GRBG12P, GBRG12P, BGGR12P, Mono12P},
	}
}

// Samples returns the sample layout of p, or false if p is not a sensor format.
func (p PixelFormat) Samples() (Samples, bool) {
	for i, row := range sensorFormats() {
		for m, q := range row {
			if p == q && i < 5 {
				return Samples{Mosaic: Mosaic(m), Bits: 8 + 2*i}, true
			} else if p == q {
				return Samples{Mosaic: Mosaic(m), Bits: 2 * i, Packed: true}, true
			}
		}
	}
	return Samples{}, false
}

// Format returns the pixel format with the sample layout s, or false if there is none.
func (s Samples) Format() (PixelFormat, bool) {
	for _, row := range sensorFormats() {
		for _, p := range row {
			if t, _ := p.Samples(); t == s {
				return p, true
			}
		}
	}
	return 0, false
}

// A PixelGroup is the smallest part of a line (of the first plane) that has whole bytes, and whole pixels that share no
// chroma with others in the line.
type PixelGroup struct{ Pixels, Bytes int }

// Group returns the pixel group of p, or the zero PixelGroup for an unknown format.
func (p PixelFormat) Group() PixelGroup {
	switch p {
	case UYVY:
		return PixelGroup{2, 4}
	case UYVP:
		return PixelGroup{2, 5}
	case RGB24:
		return PixelGroup{1, 3}
	case I420, NV12:
		return PixelGroup{2, 2}
	case MJPEG: // room for a file
		return PixelGroup{1, 2}
	}
	s, ok := p.Samples()
	switch {
	case !ok:
		return PixelGroup{}
	case s.Packed && s.Bits == 10:
		return PixelGroup{4, 5}
	case s.Packed:
		return PixelGroup{2, 3}
	case s.Bits == 8:
		return PixelGroup{1, 1}
	}
	return PixelGroup{1, 2}
}

// planar420 reports whether the luma plane is followed by chroma planes of half the height.
func (p PixelFormat) planar420() bool { return p == I420 || p == NV12 }

// LineBytes returns the length in bytes of one line of the first plane without padding. It rounds up widths that
// Format.Validate rejects, and returns 0 for an unknown format.
func (p PixelFormat) LineBytes(width int) int {
	g := p.Group()
	if g.Pixels == 0 {
		return 0
	}
	return (width + g.Pixels - 1) / g.Pixels * g.Bytes
}
