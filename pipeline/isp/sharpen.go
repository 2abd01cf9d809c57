// SPDX-License-Identifier: Apache-2.0

package isp

// sharpenGo adds s/64 of the detail of the middle line to its three colours. y holds the lumas of the lines above, at
// and below it, with mirrored margins; docs/isp.md §9.
func sharpenGo(dst, src *rgb, y *[3]line, n int, s int32) {
	up, mid, down := y[0][margin-1:][:n+2], y[1][margin-1:][:n+2], y[2][margin-1:][:n+2]
	r, g, b := src.r.at(0, n), src.g.at(0, n), src.b.at(0, n)
	dr, dg, db := dst.r.at(0, n), dst.g.at(0, n), dst.b.at(0, n)
	column := func(x int) int32 { return int32(up[x]) + 2*int32(mid[x]) + int32(down[x]) }
	left, here := column(0), column(1)
	for x := range dr {
		right := column(x + 2)
		d := 16*int32(mid[x+1]) - left - 2*here - right
		left, here = here, right
		e := (s*d + 512) >> 10
		dr[x] = uint16(min(max(int32(r[x])+e, 0), white))
		dg[x] = uint16(min(max(int32(g[x])+e, 0), white))
		db[x] = uint16(min(max(int32(b[x])+e, 0), white))
	}
}

// detailGo computes the luma in which the detail is measured.
func detailGo(dst []uint16, r, g, b []uint16) {
	r, g, b = r[:len(dst)], g[:len(dst)], b[:len(dst)]
	for x := range dst {
		dst[x] = (r[x] + 2*g[x] + b[x] + 2) >> 2
	}
}
