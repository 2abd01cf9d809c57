// SPDX-License-Identifier: Apache-2.0

package convert

// A row is one line: a luma sample for each pixel, and a Cb and a Cr sample for every two.
type row struct{ y, cb, cr []byte }

func newRow(width int) row {
	return row{make([]byte, width), make([]byte, width/2), make([]byte, width/2)}
}

// A picture returns its lines. A line may lie in room, which is as wide as the picture, or in the picture itself, and is
// valid until the next call with the same room.
type picture interface {
	line(y int, room row) row
}

// packed is a picture in one plane.
type packed struct {
	bytes  []byte
	stride int
	unpack func(to row, line []byte)
}

func (p *packed) line(y int, room row) row {
	p.unpack(room, p.bytes[y*p.stride:])
	return room
}

func unpackUYVY(to row, line []byte) {
	for i := range to.cb {
		q := (*[4]byte)(line[4*i:])
		to.cb[i], to.y[2*i], to.cr[i], to.y[2*i+1] = q[0], q[1], q[2], q[3]
	}
}

// unpackRGB converts R'G'B' to Y'CbCr of BT.709 at full range.
func unpackRGB(to row, line []byte) {
	for i := range to.cb {
		q := (*[6]byte)(line[6*i:])
		var cb, cr int32
		for k := range 2 {
			r, g, b := int32(q[3*k]), int32(q[3*k+1]), int32(q[3*k+2])
			to.y[2*i+k] = byte((rgbLuma[0]*r + rgbLuma[1]*g + rgbLuma[2]*b + half) >> bits)
			cb += rgbCb[0]*r + rgbCb[1]*g + rgbCb[2]*b
			cr += rgbCr[0]*r + rgbCr[1]*g + rgbCr[2]*b
		}
		to.cb[i], to.cr[i] = clamp((cb/2+128<<bits+half)>>bits), clamp((cr/2+128<<bits+half)>>bits)
	}
}

// semiplanar is a picture in NV12.
type semiplanar struct {
	y, pairs []byte
	stride   int
}

func (p *semiplanar) line(y int, room row) row {
	pairs := p.pairs[y/2*p.stride:]
	for i := range room.cb {
		q := (*[2]byte)(pairs[2*i:])
		room.cb[i], room.cr[i] = q[0], q[1]
	}
	return row{p.y[y*p.stride:][:len(room.y)], room.cb, room.cr}
}

// planar is a picture in three planes. A chroma sample belongs to so many pixels down and across.
type planar struct {
	y, cb, cr      []byte
	stride, chroma int // bytes from line to line
	down, across   int
}

func (p *planar) line(y int, room row) row {
	cb, cr := p.cb[y/p.down*p.chroma:], p.cr[y/p.down*p.chroma:]
	luma := p.y[y*p.stride:][:len(room.y)]
	switch p.across {
	case 1:
		for i := range room.cb {
			room.cb[i] = byte((int(cb[2*i]) + int(cb[2*i+1]) + 1) / 2)
			room.cr[i] = byte((int(cr[2*i]) + int(cr[2*i+1]) + 1) / 2)
		}
	case 4:
		for i := range room.cb {
			room.cb[i], room.cr[i] = cb[i/2], cr[i/2]
		}
	default:
		return row{luma, cb[:len(room.cb)], cr[:len(room.cr)]}
	}
	return row{luma, room.cb, room.cr}
}
