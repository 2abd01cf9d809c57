// SPDX-License-Identifier: Apache-2.0

package isp

// A shading is the lens shading for a frame size; docs/isp.md §4. The grid's lines are interpolated to all pixels once,
// separately for even and odd lines of the frame because of their channels; for each line of the frame only the
// interpolation between two of those remains.
type shading struct {
	lines [2][]line // by the frame's line modulo 2, and by the grid's line; in 1/4096
	atY   []uint16  // position of line y of the frame in the grid, in units of 1/256
}

func newShading(s *Shading, l *levels, width, height int) *shading {
	if s == nil {
		return nil
	}
	t := &shading{atY: positions(height, s.Rows)}
	at := positions(width, s.Columns)
	for parity := range t.lines {
		channels := l.channels(parity)
		for j := range s.Rows {
			gains := newLine(width)
			for x := range width {
				nodes := s.Gains[channels[x&1]][j*s.Columns:][:s.Columns]
				i, f := int(at[x]>>8), int(at[x]&255)
				gains[margin+x] = uint16((fixed(nodes[i])*(256-f) + fixed(nodes[min(i+1, s.Columns-1)])*f + 128) >> 8)
			}
			t.lines[parity] = append(t.lines[parity], gains)
		}
	}
	return t
}

// positions returns the positions of n samples, equally spaced from the first node to the last, in 1/256 of the
// distance between two nodes.
func positions(n, nodes int) []uint16 {
	p := make([]uint16, n)
	for i := range p {
		p[i] = uint16(i * (nodes - 1) * 256 / (n - 1))
	}
	return p
}

// apply multiplies the samples of line y by their gains.
func (s *shading) apply(dst, src []uint16, y int) {
	j, h := int(s.atY[y]>>8), int16(s.atY[y]&255)
	lines := s.lines[y&1]
	upper, lower := lines[j], lines[min(j+1, len(lines)-1)]
	shadeRow(dst, src, upper.at(0, len(dst)), lower.at(0, len(dst)), &[2]int16{256 - h, h})
}

// shadeGo multiplies samples by gains between those of two lines, weighted in 1/256.
func shadeGo(dst, src, upper, lower []uint16, weight *[2]int16) {
	src, upper, lower = src[:len(dst)], upper[:len(dst)], lower[:len(dst)]
	w0, w1 := uint32(weight[0]), uint32(weight[1])
	for x := range dst {
		g := (uint32(upper[x])*w0 + uint32(lower[x])*w1 + 128) >> 8
		dst[x] = uint16(min((uint32(src[x])*g+gainOne/2)>>12, 1<<16-1))
	}
}
