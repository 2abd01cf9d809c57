package isp

import (
	"encoding/binary"

	"tegracast/pipeline"
)

// The coefficients of docs/isp.md §6. Those of luma are in units of 2^-13, those of chroma, which are applied to the
// sum of four pixels, in units of 2^-14 a pixel.
const (
	// weights holds three coefficients in reverse, so that the topmost field of pixel*weights is
	// r*wr + g*wg + b*wb; no carry comes from below, because each field below is less than 255 * 2^13 < 2^21.
	luma709   = 508 | 5032<<greenShift | 1496<<blueShift
	offset709 = (16<<13 + 1<<12) << blueShift
	luma601   = 934 | 4809<<greenShift | 2449<<blueShift
	offset601 = 1 << 12 << blueShift

	// Cb in the lower, Cr in the upper half of a word. The sum of all three products and the bias is positive in
	// both halves; what single products borrow from the upper half, the sum gives back.
	red709, green709, blue709 = 7196<<32 - 1649, -6536<<32 - 5547, -660<<32 + 7196
	bias709                   = (128<<16 + 1<<15) * (1<<32 + 1)
	red601, green601, blue601 = 8192<<32 - 2765, -6860<<32 - 5427, -1332<<32 + 8192
	bias601                   = (128<<16 + 1<<15 - 1) * (1<<32 + 1)
)

func chroma709(sum uint64) uint64 {
	r, g, b := int64(sum&fieldMask), int64(sum>>greenShift&fieldMask), int64(sum>>blueShift)
	return uint64(r*red709 + g*green709 + b*blue709 + bias709)
}

func chroma601(sum uint64) uint64 {
	r, g, b := int64(sum&fieldMask), int64(sum>>greenShift&fieldMask), int64(sum>>blueShift)
	return uint64(r*red601 + g*green601 + b*blue601 + bias601)
}

// writeUYVY writes line y. Chroma is sited on the even pixels and filtered 1-2-1; row[0] is the pixel left of them.
func writeUYVY(f *pipeline.Frame, y int, row []uint64) {
	dst := f.Bytes[y*f.Format.Stride:][:2*f.Format.Width]
	left := row[0]
	row = row[1:][:f.Format.Width]
	for len(row) >= 2 && len(dst) >= 4 {
		p0, p1 := row[0], row[1]
		c := chroma709(left + 2*p0 + p1)
		y0, y1 := p0*luma709+offset709, p1*luma709+offset709
		binary.LittleEndian.PutUint32(dst, uint32(c>>16&0xff|y0>>47&0xff00|c>>32&0xff0000|y1>>31&0xff000000))
		left, row, dst = p1, row[2:], dst[4:]
	}
}

// writeI420 writes lines y and y+1 and the chroma line they share: the mean of 2x2 pixels, as JFIF sites it.
func writeI420(f *pipeline.Frame, y int, row0, row1 []uint64) {
	w, h, stride := f.Format.Width, f.Format.Height, f.Format.Stride
	y0, y1 := f.Bytes[y*stride:][:w], f.Bytes[(y+1)*stride:][:w]
	chroma := f.Bytes[h*stride:]
	cb := chroma[y/2*(stride/2):][:w/2]
	cr := chroma[h/2*(stride/2)+y/2*(stride/2):][:w/2]
	row0, row1 = row0[1:][:w], row1[1:][:w]
	for i := range cb {
		p, q := (*[2]uint64)(row0[2*i:]), (*[2]uint64)(row1[2*i:])
		c := chroma601(p[0] + p[1] + q[0] + q[1])
		cb[i], cr[i] = uint8(c>>16), uint8(c>>48)
		a, b := (*[2]uint8)(y0[2*i:]), (*[2]uint8)(y1[2*i:])
		a[0], a[1] = luma(p[0]), luma(p[1])
		b[0], b[1] = luma(q[0]), luma(q[1])
	}
}

func luma(pixel uint64) uint8 { return uint8((pixel*luma601 + offset601) >> 55) }
