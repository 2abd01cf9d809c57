// SPDX-License-Identifier: Apache-2.0

package isp

// A block of 2x2 pixels has a colour, red or blue, at an even pixel of one line and the other at an odd pixel of the
// other line, wherever red is. Both other samples are green. The first arguments of a kernel are named after that: even
// gets the colour at even pixels.

// blocks returns the lines of p for the colours at even and at odd pixels, and which of two lines, counted from an even
// one, has the former.
func (p *rgb) blocks(l *levels) (even, odd line, first int) {
	if l.red[0] == 0 {
		return p.r, p.b, l.red[1]
	}
	return p.b, p.r, 1 - l.red[1]
}

// quads makes a line of half the size from two lines, starting at the sensor's line 2y; docs/isp.md §6.3. l gives the
// position of red.
func quads(dst *rgb, l *levels, lines [2]line, n int) {
	if l.mono {
		halfMonoRow(dst.g.at(0, n), lines[0].at(0, 2*n), lines[1].at(0, 2*n))
		return
	}
	even, odd, i := dst.blocks(l)
	halfRow(even.at(0, n), dst.g.at(0, n), odd.at(0, n), lines[i].at(0, 2*n), lines[1-i].at(0, 2*n))
}

// quadsOfQuads makes a line of a quarter of the size from four lines, starting at the sensor's line 4y; §6.3.
func quadsOfQuads(dst *rgb, l *levels, lines [4]line, n int) {
	if l.mono {
		quarterMonoRow(dst.g.at(0, n), &lines)
		return
	}
	even, odd, i := dst.blocks(l)
	quarterRow(even.at(0, n), dst.g.at(0, n), odd.at(0, n), &[4]line{lines[i], lines[2+i], lines[1-i], lines[3-i]})
}

// halfGo makes pixels from blocks of the lines a, which has a colour at its even pixels, and b.
func halfGo(even, green, odd, a, b []uint16) {
	green, odd = green[:len(even)], odd[:len(even)]
	for x := range even {
		p, q := (*[2]uint16)(a[2*x:]), (*[2]uint16)(b[2*x:])
		even[x], green[x], odd[x] = p[0], (p[1]+q[0]+1)>>1, q[1]
	}
}

func halfMonoGo(dst, a, b []uint16) {
	for x := range dst {
		p, q := (*[2]uint16)(a[2*x:]), (*[2]uint16)(b[2*x:])
		dst[x] = (p[0] + p[1] + q[0] + q[1] + 2) >> 2
	}
}

// quarterGo makes pixels from blocks of 4x4. The first two lines have a colour at their even pixels.
func quarterGo(even, green, odd []uint16, lines *[4]line) {
	pair := func(i, x int) uint32 { return uint32(lines[i][margin+x]) + uint32(lines[i][margin+x+2]) }
	for x := range even {
		even[x] = uint16((pair(0, 4*x) + pair(1, 4*x) + 2) >> 2)
		green[x] = uint16((pair(0, 4*x+1) + pair(1, 4*x+1) + pair(2, 4*x) + pair(3, 4*x) + 4) >> 3)
		odd[x] = uint16((pair(2, 4*x+1) + pair(3, 4*x+1) + 2) >> 2)
	}
}

func quarterMonoGo(dst []uint16, lines *[4]line) {
	for x := range dst {
		sum := uint32(8)
		for _, l := range lines {
			q := (*[4]uint16)(l[margin+4*x:])
			sum += uint32(q[0]) + uint32(q[1]) + uint32(q[2]) + uint32(q[3])
		}
		dst[x] = uint16(sum >> 4)
	}
}
