// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"image"
	"math"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
)

// A reference implements docs/isp.md sample by sample and pixel by pixel, and shares no code with the code under test.
// It caches its results, because it would otherwise take forever.
type reference struct {
	in     *pipeline.Frame
	s      pipeline.Samples
	w, h   int
	c      Config
	tone   []int
	memory map[key]int
	colors map[key][3]int
	from   [3][]image.Point // by size: where in the frame the pixels of the turned picture are, line by line
}

type key struct{ step, size, x, y int }

func newReference(in *pipeline.Frame, c Config) *reference {
	s, _ := in.Format.Pixel.Samples()
	return &reference{
		in: in, s: s, w: in.Format.Width, h: in.Format.Height, c: c, tone: referenceTone(c),
		memory: map[key]int{}, colors: map[key][3]int{},
	}
}

// remember caches f at a position that is mirrored into the frame.
func (r *reference) remember(step, x, y int, f func(x, y int) int) int {
	x, y = inside(x, r.w), inside(y, r.h)
	k := key{step: step, x: x, y: y}
	v, ok := r.memory[k]
	if !ok {
		v = f(x, y)
		r.memory[k] = v
	}
	return v
}

// inside implements the borders of §1: a walk back and forth between the outermost samples.
func inside(i, n int) int {
	period := 2 * (n - 1)
	i = ((i % period) + period) % period
	if i > n-1 {
		return period - i
	}
	return i
}

// channel returns 0 for red, 1 for green in a red line, 2 for green in a blue line, 3 for blue.
func (r *reference) channel(x, y int) int {
	if r.s.Mosaic == pipeline.Mono {
		return 1
	}
	names := []string{"0123", "1032", "2301", "3210"}[r.s.Mosaic]
	return int(names[y%2*2+x%2] - '0')
}

// sample implements §1.
func (r *reference) sample(x, y int) int {
	b := r.in.Bytes[y*r.in.Format.Stride:]
	switch {
	case r.s.Packed && r.s.Bits == 10:
		b = b[x/4*5:]
		return int(b[x%4])*4 + int(b[4])/[]int{1, 4, 16, 64}[x%4]%4
	case r.s.Packed:
		b = b[x/2*3:]
		return int(b[x%2])*16 + int(b[2])/[]int{1, 16}[x%2]%16
	case r.s.Bits == 8:
		return int(b[x])
	}
	return (int(b[2*x]) + 256*int(b[2*x+1])) % (1 << r.s.Bits)
}

func (r *reference) black(x, y int) int {
	k := r.channel(x, y)
	return r.c.BlackLevel + r.c.Black[k]
}

func (r *reference) light(x, y int) int {
	return ((1 << r.s.Bits) - 1 - r.black(x, y)) << (16 - r.s.Bits)
}

// dark implements §2.
func (r *reference) dark(x, y int) int {
	return r.remember(2, x, y, func(x, y int) int {
		d := r.sample(x, y) - r.black(x, y)
		if d < 0 {
			d = 0
		}
		return d << (16 - r.s.Bits)
	})
}

func (r *reference) known(x, y int) bool {
	for _, p := range r.c.Defects.Pixels {
		if p == image.Pt(inside(x, r.w), inside(y, r.h)) {
			return true
		}
	}
	return false
}

func (r *reference) step() int {
	if r.s.Mosaic == pipeline.Mono {
		return 1
	}
	return 2
}

// repair implements the rule of §3. bad reports which samples must not be used.
func (r *reference) repair(x, y int, at func(x, y int) int, bad func(x, y int) bool) int {
	d := r.step()
	v, best := at(x, y), math.MaxInt
	for _, p := range [][4]int{{-d, 0, d, 0}, {0, -d, 0, d}, {-d, -d, d, d}, {d, -d, -d, d}} {
		if bad(x+p[0], y+p[1]) || bad(x+p[2], y+p[3]) {
			continue
		}
		a, b := at(x+p[0], y+p[1]), at(x+p[2], y+p[3])
		diff := a - b
		if diff < 0 {
			diff = -diff
		}
		if diff < best {
			best, v = diff, (a+b+1)/2
		}
	}
	return v
}

func (r *reference) static(x, y int) int {
	return r.remember(30, x, y, func(x, y int) int {
		if !r.known(x, y) {
			return r.dark(x, y)
		}
		return r.repair(x, y, r.dark, r.known)
	})
}

func (r *reference) dynamic(x, y int) int {
	return r.remember(31, x, y, func(x, y int) int {
		c := r.static(x, y)
		if r.c.Defects.Threshold == 0 {
			return c
		}
		t := min(r.c.Defects.Threshold<<(16-r.s.Bits), 65535)
		lowest, highest := math.MaxInt, 0
		for dy := -1; dy <= 1; dy++ {
			for dx := -1; dx <= 1; dx++ {
				if v := r.static(x+dx*r.step(), y+dy*r.step()); dx != 0 || dy != 0 {
					lowest, highest = min(lowest, v), max(highest, v)
				}
			}
		}
		if c > highest+t || c+t < lowest {
			return r.repair(x, y, r.static, func(int, int) bool { return false })
		}
		return c
	})
}

// even implements §4.
func (r *reference) even(x, y int) int {
	s := r.c.Shading
	if s == nil {
		return r.dynamic(x, y)
	}
	return r.remember(4, x, y, func(x, y int) int {
		node := func(i, j int) int {
			if i >= s.Columns || j >= s.Rows {
				return 0
			}
			return int(math.Floor(s.Gains[r.channel(x, y)][j*s.Columns+i]*4096 + 0.5))
		}
		u, v := x*(s.Columns-1)*256/(r.w-1), y*(s.Rows-1)*256/(r.h-1)
		across := func(j int) int { return (node(u/256, j)*(256-u%256) + node(u/256+1, j)*(u%256) + 128) / 256 }
		g := (across(v/256)*(256-v%256) + across(v/256+1)*(v%256) + 128) / 256
		return min((r.dynamic(x, y)*g+2048)/4096, 65535)
	})
}

// linear implements §5.
func (r *reference) linear(x, y int) int {
	return r.remember(5, x, y, func(x, y int) int {
		gain := []float64{r.c.Gains.R, r.c.Gains.G, r.c.Gains.G, r.c.Gains.B}[r.channel(x, y)]
		if gain == 0 {
			gain = 1
		}
		g, l := int(math.Floor(gain*4096+0.5)), r.light(x, y)
		m, n := 32767, 1
		for i := 29; i >= 1; i-- {
			if q := (2*g*16383*(1<<i) + 4096*l) / (2 * 4096 * l); q <= 32767 {
				m, n = q, i
				break
			}
		}
		return min((r.even(x, y)*m+1<<(n-1))>>n, 16383)
	})
}

func clipped(v int) int { return min(max(v, 0), 16383) }

// floorDiv returns the quotient rounded towards minus infinity.
func floorDiv(a, b int) int { return int(math.Floor(float64(a) / float64(b))) }

// threeColors implements §6 at full size.
func (r *reference) threeColors(x, y int) [3]int {
	at := func(dx, dy int) int { return r.linear(x+dx, y+dy) }
	c := at(0, 0)
	if r.s.Mosaic == pipeline.Mono {
		return [3]int{c, c, c}
	}
	we, ns, diagonal := at(-1, 0)+at(1, 0), at(0, -1)+at(0, 1), at(-1, -1)+at(1, -1)+at(-1, 1)+at(1, 1)
	we2, ns2 := at(-2, 0)+at(2, 0), at(0, -2)+at(0, 2)
	channel := r.channel(x, y)
	own, green, third := c, c, 0
	switch atGreen := channel == 1 || channel == 2; {
	case r.c.Demosaic == Bilinear && !atGreen:
		green, third = (ns+we+2)/4, (diagonal+2)/4
	case r.c.Demosaic == Bilinear:
		own, third = (we+1)/2, (ns+1)/2
	case !atGreen:
		green = clipped(floorDiv(8*c+4*(ns+we)-2*(ns2+we2)+8, 16))
		third = clipped(floorDiv(12*c+4*diagonal-3*(ns2+we2)+8, 16))
	default:
		own = clipped(floorDiv(10*c+8*we-2*(diagonal+we2)+ns2+8, 16))
		third = clipped(floorDiv(10*c+8*ns-2*(diagonal+ns2)+we2+8, 16))
	}
	if channel <= 1 { // a red line
		return [3]int{own, green, third}
	}
	return [3]int{third, green, own}
}

// block implements §6.3; n is 2 or 4.
func (r *reference) block(x, y, n int) [3]int {
	var sum, k [3]int
	for dy := range n {
		for dx := range n {
			color := []int{0, 1, 1, 2}[r.channel(n*x+dx, n*y+dy)]
			sum[color] += r.linear(n*x+dx, n*y+dy)
			k[color]++
		}
	}
	if r.s.Mosaic == pipeline.Mono {
		v := (sum[1] + k[1]/2) / k[1]
		return [3]int{v, v, v}
	}
	for i := range sum {
		sum[i] = (sum[i] + k[i]/2) / k[i]
	}
	return sum
}

// toned implements §6 to §8, mirrored at the borders of the size.
func (r *reference) toned(size, x, y int) [3]int {
	x, y = inside(x, r.w>>size), inside(y, r.h>>size)
	k := key{8, size, x, y}
	if p, ok := r.colors[k]; ok {
		return p
	}
	var p [3]int
	if size == 0 {
		p = r.threeColors(x, y)
	} else {
		p = r.block(x, y, 1<<size)
	}
	if r.c.Matrix != [9]float64{} && r.s.Mosaic != pipeline.Mono {
		var q [3]int
		for i := range q {
			sum := 2048
			for j := range p {
				sum += min(int(math.Floor(r.c.Matrix[3*i+j]*4096+0.5)), 32767) * p[j]
			}
			q[i] = clipped(floorDiv(sum, 4096))
		}
		p = q
	}
	for i := range p {
		p[i] = r.tone[p[i]]
	}
	r.colors[k] = p
	return p
}

// pixel implements §9.
func (r *reference) pixel(size, x, y int) [3]int {
	p := r.toned(size, x, y)
	s := int(math.Floor(r.c.Sharpen*64 + 0.5))
	if s == 0 {
		return p
	}
	luma := func(dx, dy int) int {
		q := r.toned(size, x+dx, y+dy)
		return (q[0] + 2*q[1] + q[2] + 2) / 4
	}
	d := 16 * luma(0, 0)
	for dy := -1; dy <= 1; dy++ {
		for dx := -1; dx <= 1; dx++ {
			d -= (2 - dx*dx) * (2 - dy*dy) * luma(dx, dy)
		}
	}
	e := floorDiv(s*d+512, 1024)
	for i := range p {
		p[i] = min(max(p[i]+e, 0), 4080)
	}
	return p
}

// turned implements §9a: it returns the size of the turned picture, and where in the frame its pixels are. It moves every
// pixel, first by the flip and then by the rotation.
func (r *reference) turned(size int) (width, height int, from []image.Point) {
	width, height = r.w>>size, r.h>>size
	flip, degrees := false, 0
	for i := range 8 { // all that there are: a vertical flip is a horizontal one and half a turn
		if NewTurn(i >= 4, false, i%4*90) == r.c.Turn {
			flip, degrees = i >= 4, i%4*90
		}
	}
	across := []int{width, height}[degrees/90%2]
	if r.from[size] == nil {
		r.from[size] = make([]image.Point, width*height)
		for y := range height {
			for x := range width {
				to := image.Pt(x, y)
				if flip {
					to.X = width - 1 - x
				}
				switch degrees {
				case 90:
					to = image.Pt(height-1-to.Y, to.X)
				case 180:
					to = image.Pt(width-1-to.X, height-1-to.Y)
				case 270:
					to = image.Pt(to.Y, width-1-to.X)
				}
				r.from[size][to.Y*across+to.X] = image.Pt(x, y)
			}
		}
	}
	return across, width * height / max(across, 1), r.from[size]
}

// coefficients returns the table of §10.
func coefficients(c pipeline.Colorimetry, bits int) [9]int {
	switch {
	case c == pipeline.BT709Limited:
		return [9]int{5983, 20127, 2032, -3298, -11094, 14392, 14392, -13072, -1320}
	case c == pipeline.BT601Limited:
		return [9]int{8415, 16519, 3208, -4857, -9535, 14392, 14392, -12052, -2340}
	case c == pipeline.BT709Full && bits == 8:
		return [9]int{6966, 23436, 2366, -3754, -12630, 16384, 16384, -14882, -1502}
	case c == pipeline.BT601Full && bits == 8:
		return [9]int{9798, 19235, 3735, -5529, -10855, 16384, 16384, -13720, -2664}
	case c == pipeline.BT709Full:
		return [9]int{6987, 23504, 2373, -3765, -12667, 16432, 16432, -14925, -1507}
	}
	return [9]int{9826, 19291, 3747, -5545, -10887, 16432, 16432, -13760, -2672}
}

func isFull(c pipeline.Colorimetry) bool {
	return c == pipeline.BT709Full || c == pipeline.BT601Full
}

// A target is an output format during the steps of §10 and §12.
type target struct {
	r    *reference
	f    pipeline.Format
	size int
	bits int
}

func (t *target) pixel(x, y int) [3]int {
	_, _, from := t.r.turned(t.size)
	at := from[y*t.f.Width+x]
	return t.r.pixel(t.size, at.X, at.Y)
}

func (t *target) code(v, shift int) int {
	v = floorDiv(v, 1<<shift)
	if v < 0 || v >= 1<<t.bits {
		panic("the reference leaves the bits of the output")
	}
	return v
}

func (t *target) luma(x, y int) int {
	k, p, z := coefficients(t.f.Color, t.bits), t.pixel(x, y), 27-t.bits
	if t.bits == 10 {
		z = 17
	}
	o := 1 << (z - 1)
	if !isFull(t.f.Color) {
		o += 16 << 19
	}
	return t.code(k[0]*p[0]+k[1]*p[1]+k[2]*p[2]+o, z)
}

// chroma returns Cb (0) or Cr (1) of weighted pixels.
func (t *target) chroma(which int, weights map[image.Point]int) int {
	k, z := coefficients(t.f.Color, t.bits), 19
	if t.bits == 10 {
		z = 17
	}
	sum := 128<<21 + 1<<(z+1)
	if isFull(t.f.Color) {
		sum--
	}
	for at, weight := range weights {
		p := t.pixel(at.X, at.Y)
		for i := range p {
			sum += k[3+3*which+i] * p[i] * weight
		}
	}
	return t.code(sum, z+2)
}

func (t *target) chroma422(which, x, y int) int {
	w := map[image.Point]int{}
	w[image.Pt(inside(x-1, t.f.Width), y)]++
	w[image.Pt(x, y)] += 2
	w[image.Pt(x+1, y)]++
	return t.chroma(which, w)
}

func (t *target) chroma420(which, x, y int) int {
	return t.chroma(which, map[image.Point]int{{X: x, Y: y}: 1, {X: x + 1, Y: y}: 1, {X: x, Y: y + 1}: 1, {X: x + 1, Y: y + 1}: 1})
}

func (t *target) rgb(x, y, i int) int {
	v := t.pixel(x, y)[i]
	if isFull(t.f.Color) {
		return t.code(v+8, 4)
	}
	return t.code(28142*v+16<<19+1<<18, 19)
}

// picture writes the format over the contents of dst.
func (r *reference) picture(f pipeline.Format, dst []byte) {
	t := &target{r: r, f: f, bits: 8}
	for w, h, _ := r.turned(t.size); f.Width != w || f.Height != h; w, h, _ = r.turned(t.size) {
		t.size++
	}
	if f.Pixel == pipeline.UYVP {
		t.bits = 10
	}
	put := func(at, v int) {
		if f.PacketPitch > 0 {
			payload := f.PacketPitch - f.HeaderGap
			at = at/payload*f.PacketPitch + f.HeaderGap + at%payload
		}
		dst[at] = byte(v)
	}
	for y := range f.Height {
		for x := range f.Width {
			t.putPixel(put, x, y)
		}
	}
}

func (t *target) putPixel(put func(at, v int), x, y int) {
	f := t.f
	start := y * f.Stride
	switch f.Pixel {
	case pipeline.UYVY:
		put(start+2*x, t.chroma422(x%2, x-x%2, y))
		put(start+2*x+1, t.luma(x, y))
	case pipeline.UYVP:
		if x%2 == 0 {
			v := ((t.chroma422(0, x, y)<<10|t.luma(x, y))<<10|t.chroma422(1, x, y))<<10 | t.luma(x+1, y)
			for i := range 5 {
				put(start+x/2*5+i, v>>(32-8*i)&255)
			}
		}
	case pipeline.RGB24:
		for i := range 3 {
			put(start+3*x+i, t.rgb(x, y, i))
		}
	case pipeline.Grey:
		put(start+x, t.luma(x, y))
	default:
		put(start+x, t.luma(x, y))
		if x%2 == 0 && y%2 == 0 {
			chroma := f.Stride * f.Height
			for i := range 2 {
				at := chroma + (i*f.Height/2+y/2)*(f.Stride/2) + x/2
				if f.Pixel == pipeline.NV12 {
					at = chroma + y/2*f.Stride + x + i
				}
				put(at, t.chroma420(i, x, y))
			}
		}
	}
}

// referenceTone implements §8 in floating point; TestToneTable shows that no code is close to a boundary.
func referenceTone(c Config) []int {
	t := make([]int, 16384)
	if c.Gamma == 0 && len(c.Curve) == 0 {
		return referenceSegments()
	}
	for i := range t {
		if n := len(c.Curve); n > 0 {
			j, f := i*(n-1)/16383, i*(n-1)%16383
			t[i] = c.Curve[j] * (16383 - f)
			if j+1 < n {
				t[i] += c.Curve[j+1] * f
			}
			t[i] = (t[i] + 8191) / 16383
			continue
		}
		t[i] = int(math.Floor(4080*referenceTransfer(float64(i)/16383, c.Gamma) + 0.5))
	}
	return t
}

// referenceSegments returns the table of §8's segments, line by line.
func referenceSegments() []int {
	exact := func(i int) int { return int(math.Floor(4080*referenceTransfer(float64(i)/16383, 0) + 0.5)) }
	t := make([]int, 16384)
	for _, r := range [][3]int{{0, 1024, 64}, {1024, 4096, 128}, {4096, 16384, 512}} {
		for a := r[0]; a < r[1]; a += r[2] {
			rise := 0
			if a+r[2] < 16384 {
				rise = exact(a+r[2]) - exact(a)
			} else {
				rise = floorDiv(1024*(4080-exact(a))+511, 1022)
			}
			for i := a; i < a+r[2]; i++ {
				t[i] = exact(a) + floorDiv(rise*(i-a)+r[2]/2, r[2])
			}
		}
	}
	return t
}

func referenceTransfer(l, gamma float64) float64 {
	gamma = math.Floor(gamma*100+0.5) / 100
	switch {
	case gamma != 0:
		return math.Pow(l, 1/gamma)
	case l < 0.018:
		return 4.5 * l
	}
	return 1.099*math.Pow(l, 0.45) - 0.099
}

func TestToneTable(t *testing.T) {
	for _, gamma := range []float64{0, 1, 1.8, 2.2, 2.4, 4} {
		table, want := newTone(Config{Gamma: gamma}).table, referenceTone(Config{Gamma: gamma})
		for i, v := range want {
			// The nearest boundary k-1/2 must be farther away than the error of floating point.
			if exact := 4080 * referenceTransfer(float64(i)/16383, gamma); math.Abs(exact-math.Floor(exact)-0.5) < 1e-8 {
				t.Errorf("gamma %v: sample %d is at a border", gamma, i)
			}
			if int(table[i]) != v {
				t.Fatalf("gamma %v: T[%d] = %d, want %d", gamma, i, table[i], v)
			}
			// The exact comparison, on both sides of the boundary.
			if h := int64(math.Floor(gamma*100 + 0.5)); gamma != 0 && i%37 == 0 && (v > 0 && !reaches(int64(i), int64(v), h) || v < 4080 && reaches(int64(i), int64(v)+1, h)) {
				t.Fatalf("gamma %v: T[%d] = %d by integers is another", gamma, i, v)
			}
		}
		if gamma == 0 {
			checkBT709(t, table[:])
		}
		if table[0] != 0 || table[16383] != 4080 {
			t.Errorf("gamma %v: ends %d, %d", gamma, table[0], table[16383])
		}
	}
}

// checkBT709 compares the segments with the transfer function itself: they rise, and deviate by less than an eighth of
// a code of 255.
func checkBT709(t *testing.T, table []uint16) {
	t.Helper()
	worst := 0.0
	for i, v := range table {
		worst = max(worst, math.Abs(float64(v)-4080*referenceTransfer(float64(i)/16383, 0))/16)
		if i > 0 && v < table[i-1] {
			t.Errorf("T[%d] = %d after %d", i, v, table[i-1])
		}
		if k := int64(exactCode(i, 0)); i%37 == 0 && (k > 0 && !reaches(int64(i), k, 0) || k < 4080 && reaches(int64(i), k+1, 0)) {
			t.Fatalf("the code of %d by integers is another than %d", i, k)
		}
	}
	t.Logf("BT.709: off by up to %.3f of 255", worst)
	if worst > 0.125 {
		t.Errorf("BT.709: off by up to %.3f of 255", worst)
	}
}
