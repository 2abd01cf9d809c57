// SPDX-License-Identifier: Apache-2.0

package fpga

// A FourCC is the V4L2 code of a frame's format, as in the camera's FORMAT register and in the trailer (Linux
// include/uapi/linux/videodev2.h). Samples of more than 8 bits are stored in little-endian 16-bit words with zeros in
// the upper bits.
type FourCC uint32

// NewFourCC returns the code with the given characters.
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

// Bits returns the number of significant bits per sample, or 0 if the format is neither UYVY nor in the table of
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

// SampleBytes returns the size of a sample in memory: 1 byte up to 8 bits, 2 bytes above, 0 for an unknown format. For
// UYVY it returns the size of a pixel: luma and one colour difference.
func (f FourCC) SampleBytes() int {
	if !f.Sensor() && f.Bits() > 0 {
		return 2
	}
	return (f.Bits() + 7) / 8
}

// Sensor reports whether the format is one delivered by sensors, rather than one of processed pictures.
func (f FourCC) Sensor() bool { return f.Bits() > 0 && f.String() != "UYVY" }
