// SPDX-License-Identifier: Apache-2.0

package fpga

// A FourCC is the V4L2 code of a frame's format, as it stands in the camera's FORMAT register and in the trailer
// (Linux include/uapi/linux/videodev2.h). Samples of more than 8 bits lie in little-endian 16-bit words with the
// upper bits zero.
type FourCC uint32

// NewFourCC returns the code of four characters.
func NewFourCC(s [4]byte) FourCC {
	return FourCC(s[0]) | FourCC(s[1])<<8 | FourCC(s[2])<<16 | FourCC(s[3])<<24
}

func (f FourCC) String() string {
	b := [4]byte{byte(f), byte(f >> 8), byte(f >> 16), byte(f >> 24)}
	for i, c := range b {
		if c < ' ' || c > '~' {
			b[i] = '?'
		}
	}
	return string(b[:])
}

// Bits is the number of significant bits of a sample, 0 when the format is not one of the table in
// docs/fpga-interface.md.
func (f FourCC) Bits() int {
	switch f.String() {
	case "RGGB", "GRBG", "GBRG", "BA81", "GREY", "UYVY":
		return 8
	case "RG10", "BA10", "GB10", "BG10", "Y10 ":
		return 10
	case "RG12", "BA12", "GB12", "BG12", "Y12 ":
		return 12
	case "RG14", "GR14", "GB14", "BG14", "Y14 ":
		return 14
	case "RG16", "GR16", "GB16", "BYR2", "Y16 ":
		return 16
	}
	return 0
}

// SampleBytes is the number of bytes of a sample in memory: 1 up to 8 bits, 2 above, 0 for an unknown format. For UYVY
// it is those of a pixel: luma and one of the colour differences.
func (f FourCC) SampleBytes() int {
	if !f.Sensor() && f.Bits() > 0 {
		return 2
	}
	return (f.Bits() + 7) / 8
}

// Sensor says whether the format is one that a sensor delivers, and not one of processed pictures.
func (f FourCC) Sensor() bool { return f.Bits() > 0 && f.String() != "UYVY" }
