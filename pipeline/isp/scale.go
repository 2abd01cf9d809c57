// SPDX-License-Identifier: Apache-2.0

package isp

// quads makes a line of half the size from two lines, starting at the sensor's line 2y; docs/isp.md §6.3. l gives the
// position of red.
func quads(dst *rgb, l *levels, lines [2]line, n int) {
	if l.mono {
		a, b, d := lines[0][margin:], lines[1][margin:], dst.g.at(0, n)
		for x := range d {
			d[x] = uint16((uint32(a[2*x]) + uint32(a[2*x+1]) + uint32(b[2*x]) + uint32(b[2*x+1]) + 2) >> 2)
		}
		return
	}
	red, blue := lines[l.red[1]].at(0, 2*n), lines[1-l.red[1]].at(0, 2*n)
	r, g, b := dst.r.at(0, n), dst.g.at(0, n), dst.b.at(0, n)
	i := l.red[0]
	for x := range r {
		q, p := (*[2]uint16)(red[2*x:]), (*[2]uint16)(blue[2*x:])
		r[x], g[x], b[x] = q[i&1], (q[1-i&1]+p[i&1]+1)>>1, p[1-i&1]
	}
}

// quadsOfQuads makes a line of a quarter of the size from four lines, starting at the sensor's line 4y; §6.3.
func quadsOfQuads(dst *rgb, l *levels, lines [4]line, n int) {
	if l.mono {
		d := dst.g.at(0, n)
		for x := range d {
			sum := uint32(8)
			for _, a := range lines {
				q := (*[4]uint16)(a[margin+4*x:])
				sum += uint32(q[0]) + uint32(q[1]) + uint32(q[2]) + uint32(q[3])
			}
			d[x] = uint16(sum >> 4)
		}
		return
	}
	i, j := l.red[0], l.red[1]
	red0, red1 := lines[j].at(0, 4*n), lines[2+j].at(0, 4*n)
	blue0, blue1 := lines[1-j].at(0, 4*n), lines[3-j].at(0, 4*n)
	r, g, b := dst.r.at(0, n), dst.g.at(0, n), dst.b.at(0, n)
	pair := func(l []uint16, x, i int) uint32 { return uint32(l[4*x+i]) + uint32(l[4*x+2+i]) }
	for x := range r {
		r[x] = uint16((pair(red0, x, i) + pair(red1, x, i) + 2) >> 2)
		b[x] = uint16((pair(blue0, x, 1-i) + pair(blue1, x, 1-i) + 2) >> 2)
		g[x] = uint16((pair(red0, x, 1-i) + pair(red1, x, 1-i) + pair(blue0, x, i) + pair(blue1, x, i) + 4) >> 3)
	}
}
