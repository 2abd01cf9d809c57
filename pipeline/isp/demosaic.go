package isp

import "encoding/binary"

// A packed pixel is R' | G'<<greenShift | B'<<blueShift. Fields are so far apart that four pixels can be added, and
// that a product with a word of three coefficients has the dot product in its topmost field (see weights).
const (
	greenShift = 21
	blueShift  = 42
	fieldMask  = 1<<21 - 1
)

// Sums of samples are made in the four 16 bit lanes of a word at once.
const (
	lanes     = 0x0001_0001_0001_0001
	laneMask  = linearMax * lanes
	evenLanes = 0x0000_ffff_0000_ffff
)

// A lineKind says what stands in a sensor line besides green.
type lineKind struct {
	color uint64 // lanes of the pixels that are not green
	red   bool   // they are red, else blue
}

var (
	redLine  = lineKind{color: evenLanes, red: true}
	blueLine = lineKind{color: ^uint64(evenLanes)}
)

// linearRow looks up a line of sensor words; dst[0] and the word behind the last get the mirrored neighbours.
func linearRow(dst []uint64, src []byte, even, odd *[1 << 16]uint16) {
	row := dst[1:]
	n := len(src) / 8
	for i := range row[:n] {
		v := binary.LittleEndian.Uint64(src[8*i:])
		row[i] = uint64(even[uint16(v)]) | uint64(odd[uint16(v>>16)])<<16 |
			uint64(even[uint16(v>>32)])<<32 | uint64(odd[v>>48])<<48
	}
	last := row[max(n-1, 0)]
	if rest := src[8*n:]; len(rest) >= 4 {
		v := binary.LittleEndian.Uint32(rest)
		last = uint64(even[uint16(v)]) | uint64(odd[v>>16])<<16
		row[n] = last | last<<32
	} else {
		row[n] = last >> 32
	}
	dst[0] = row[0] << 32
}

// bilinear makes a row of packed pixels of the line mid between the lines up and down; docs/isp.md §3, §4.
func bilinear(dst, up, mid, down []uint64, gamma *[1 << 16]uint8, kind lineKind) {
	color, green := kind.color, ^kind.color
	color14, green14 := color&laneMask, green&laneMask
	n := len(mid) - 2
	up, mid, down, row := up[:n+2], mid[:n+2], down[:n+2], dst[1:4*n+1]
	c0, c := mid[0], mid[1]
	v0, v := up[0]+down[0], up[1]+down[1]
	for i := range n {
		// h, d: the sums of the left and right neighbours of mid and of up plus down
		c1, v1 := mid[i+2], up[i+2]+down[i+2]
		h := (c<<16 | c0>>48) + (c>>16 | c1<<48)
		d := (v<<16 | v0>>48) + (v>>16 | v1<<48)
		own := c&color | (h+lanes)>>1&green14
		g := c&green | (h+v+2*lanes)>>2&color14
		other := (d+2*lanes)>>2&color14 | (v+lanes)>>1&green14
		if !kind.red {
			own, other = other, own
		}
		packRow((*[4]uint64)(row[4*i:]), own, g, other, gamma)
		c0, c, v0, v = c, c1, v, v1
	}
	dst[0] = dst[2]
}

// packRow stays a call: inlined into bilinear it costs registers, and measures 5 % slower.
func packRow(dst *[4]uint64, r, g, b uint64, gamma *[1 << 16]uint8) {
	dst[0] = pack(gamma[uint16(r)], gamma[uint16(g)], gamma[uint16(b)])
	dst[1] = pack(gamma[uint16(r>>16)], gamma[uint16(g>>16)], gamma[uint16(b>>16)])
	dst[2] = pack(gamma[uint16(r>>32)], gamma[uint16(g>>32)], gamma[uint16(b>>32)])
	dst[3] = pack(gamma[r>>48], gamma[g>>48], gamma[b>>48])
}

func pack(r, g, b uint8) uint64 {
	return uint64(r) | uint64(g)<<greenShift | uint64(b)<<blueShift
}

// quads makes a row of packed pixels of half the size, one of each 2x2 quad of a red and a blue line; docs/isp.md §5.
func quads(dst, red, blue []uint64, gamma *[1 << 16]uint8) {
	n := len(red) - 2
	red, blue, row := red[1:n+1], blue[1:n+1], dst[1:2*n+1]
	for i, c := range red {
		d := blue[i]
		g := (c>>16&evenLanes + d&evenLanes + lanes&evenLanes) >> 1
		q := (*[2]uint64)(row[2*i:])
		q[0] = pack(gamma[uint16(c)], gamma[uint16(g)], gamma[uint16(d>>16)])
		q[1] = pack(gamma[uint16(c>>32)], gamma[uint16(g>>32)], gamma[d>>48])
	}
	dst[0] = dst[min(2, len(dst)-1)]
}
