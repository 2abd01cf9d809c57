package isp

// A shading is the lens shading of a frame size; docs/isp.md §4.
type shading struct {
	columns int
	rows    int
	gains   [4][]uint16 // in 1/4096
	atX     []uint16    // of pixel x: node, in units of 1/256
	atY     []uint16    // of line y
}

func newShading(s *Shading, width, height int) *shading {
	if s == nil {
		return nil
	}
	t := &shading{columns: s.Columns, rows: s.Rows}
	for c, gains := range s.Gains {
		for _, g := range gains {
			t.gains[c] = append(t.gains[c], uint16(fixed(g)))
		}
	}
	positions := func(n, nodes int) []uint16 {
		p := make([]uint16, n)
		for i := range p {
			p[i] = uint16(i * (nodes - 1) * 256 / (n - 1))
		}
		return p
	}
	t.atX, t.atY = positions(width, s.Columns), positions(height, s.Rows)
	return t
}

// nodes interpolates the grid of a channel for line y. One more node stands behind the last, for weight 0.
func (s *shading) nodes(dst *[maxGrid + 1]uint32, channel, y int) {
	j, f := int(s.atY[y]>>8), uint32(s.atY[y]&255)
	upper := s.gains[channel][j*s.columns:][:s.columns]
	lower := upper
	if f > 0 {
		lower = s.gains[channel][(j+1)*s.columns:][:s.columns]
	}
	for i := range upper {
		dst[i] = (uint32(upper[i])*(256-f) + uint32(lower[i])*f + 128) >> 8
	}
	dst[s.columns] = 0
}

// apply multiplies the samples of line y.
func (s *shading) apply(dst, src []uint16, y int, channels [2]int) {
	var nodes [2][maxGrid + 1]uint32
	s.nodes(&nodes[0], channels[0], y)
	s.nodes(&nodes[1], channels[1], y)
	at, src := s.atX[:len(dst)], src[:len(dst)]
	for x := range dst {
		j, f := at[x]>>8, uint32(at[x]&255)
		n := &nodes[x&1]
		g := (n[j%(maxGrid+1)]*(256-f) + n[(j+1)%(maxGrid+1)]*f + 128) >> 8
		dst[x] = uint16(min((uint32(src[x])*g+gainOne/2)>>12, 1<<16-1))
	}
}
