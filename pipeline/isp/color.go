// SPDX-License-Identifier: Apache-2.0

package isp

import "github.com/tegracast/tegracast/pipeline"

// A conversion holds the coefficients of docs/isp.md §10 for a colorimetry at 8 or 10 bits.
type conversion struct {
	luma   lumaArgs
	chroma chromaArgs
	rgb    *lumaArgs // conversion of one colour of RGB24, as if it were luma; nil: division by 16
}

// newConversion returns the coefficients for a colorimetry and a number of bits per value. Those of luma add up to
// exactly white, those of chroma to 0.
func newConversion(color pipeline.Colorimetry, bits int) conversion {
	var c conversion
	full := color == pipeline.BT709Full || color == pipeline.BT601Full
	bt601 := color == pipeline.BT601Full || color == pipeline.BT601Limited
	switch {
	case !full && !bt601:
		c.luma.c, c.chroma.cb, c.chroma.cr = [4]int16{5983, 20127, 2032}, [4]int16{-3298, -11094, 14392}, [4]int16{14392, -13072, -1320}
	case !full:
		c.luma.c, c.chroma.cb, c.chroma.cr = [4]int16{8415, 16519, 3208}, [4]int16{-4857, -9535, 14392}, [4]int16{14392, -12052, -2340}
	case bits == 8 && !bt601:
		c.luma.c, c.chroma.cb, c.chroma.cr = [4]int16{6966, 23436, 2366}, [4]int16{-3754, -12630, 16384}, [4]int16{16384, -14882, -1502}
	case bits == 8:
		c.luma.c, c.chroma.cb, c.chroma.cr = [4]int16{9798, 19235, 3735}, [4]int16{-5529, -10855, 16384}, [4]int16{16384, -13720, -2664}
	case !bt601:
		c.luma.c, c.chroma.cb, c.chroma.cr = [4]int16{6987, 23504, 2373}, [4]int16{-3765, -12667, 16432}, [4]int16{16432, -14925, -1507}
	default:
		c.luma.c, c.chroma.cb, c.chroma.cr = [4]int16{9826, 19291, 3747}, [4]int16{-5545, -10887, 16432}, [4]int16{16432, -13760, -2672}
	}
	more := int32(bits - 8)
	c.luma.shift, c.chroma.shift = 19-more, 21-more
	c.luma.offset = 1 << (c.luma.shift - 1)
	c.chroma.offset = 128<<21 + 1<<(c.chroma.shift-1)
	if full {
		c.chroma.offset-- // a half is rounded down, because blue would otherwise be 255.5 and become 256
	} else {
		c.luma.offset += 16 << 19
		c.rgb = &lumaArgs{c: [4]int16{28142}, offset: 16<<19 + 1<<18, shift: 19}
	}
	return c
}
