// SPDX-License-Identifier: Apache-2.0

package videodev

import "fmt"

// busCodes has the codes on the media bus of linux/media-bus-format.h that sensors use, with their names as media-ctl
// writes them, by the four-character codes of the pixels as which they arrive in memory.
var busCodes = []struct {
	code   uint32
	name   string
	pixels []string
}{
	{0x3014, "SRGGB8_1X8", []string{"RGGB"}},
	{0x3002, "SGRBG8_1X8", []string{"GRBG"}},
	{0x3013, "SGBRG8_1X8", []string{"GBRG"}},
	{0x3001, "SBGGR8_1X8", []string{"BA81"}},
	{0x300f, "SRGGB10_1X10", []string{"RG10", "pRAA"}},
	{0x300a, "SGRBG10_1X10", []string{"BA10", "pgAA"}},
	{0x300e, "SGBRG10_1X10", []string{"GB10", "pGAA"}},
	{0x3007, "SBGGR10_1X10", []string{"BG10", "pBAA"}},
	{0x3012, "SRGGB12_1X12", []string{"RG12", "pRCC"}},
	{0x3011, "SGRBG12_1X12", []string{"BA12", "pgCC"}},
	{0x3010, "SGBRG12_1X12", []string{"GB12", "pGCC"}},
	{0x3008, "SBGGR12_1X12", []string{"BG12", "pBCC"}},
	{0x301c, "SRGGB14_1X14", []string{"RG14", "pREE"}},
	{0x301b, "SGRBG14_1X14", []string{"GR14", "pgEE"}},
	{0x301a, "SGBRG14_1X14", []string{"GB14", "pGEE"}},
	{0x3019, "SBGGR14_1X14", []string{"BG14", "pBEE"}},
	{0x3020, "SRGGB16_1X16", []string{"RG16"}},
	{0x301f, "SGRBG16_1X16", []string{"GR16"}},
	{0x301e, "SGBRG16_1X16", []string{"GB16"}},
	{0x301d, "SBGGR16_1X16", []string{"BYR2"}},
	{0x2001, "Y8_1X8", []string{"GREY"}},
	{0x200a, "Y10_1X10", []string{"Y10 ", "Y10P"}},
	{0x2013, "Y12_1X12", []string{"Y12 ", "Y12P"}},
	{0x202d, "Y14_1X14", []string{"Y14 ", "Y14P"}},
	{0x200f, "UYVY8_1X16", []string{"UYVY"}},
	{0x2011, "YUYV8_1X16", []string{"YUYV"}},
	{0x2006, "UYVY8_2X8", nil},
	{0x2008, "YUYV8_2X8", nil},
}

// BusName returns the name of a code on the media bus as media-ctl writes it.
func BusName(code uint32) string {
	for _, b := range busCodes {
		if b.code == code {
			return b.name
		}
	}
	return fmt.Sprintf("0x%04x", code)
}

// BusCode returns the code on the media bus of pixels in memory, or 0 if it is unknown.
func BusCode(pixels uint32) uint32 {
	for _, b := range busCodes {
		for _, p := range b.pixels {
			if Code(p) == pixels {
				return b.code
			}
		}
	}
	return 0
}
