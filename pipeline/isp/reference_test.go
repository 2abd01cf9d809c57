package isp

import (
	"math"
	"testing"

	"tegracast/pipeline"
)

// A reference is docs/isp.md, pixel by pixel, and shares nothing with the code under test.
type reference struct {
	in    *pipeline.Frame
	black int
	gain  [3]int // red, green, blue in 1/4096
	gamma []int

	samples []int                      // linear samples, made once each
	made    map[pipeline.Format][]byte // pictures, made once each
}

func newReference(in *pipeline.Frame, c Config) *reference {
	r := &reference{in: in, black: c.BlackLevel, gamma: referenceGamma(c.Gamma)}
	for i, g := range []float64{c.Gains.R, c.Gains.G, c.Gains.B} {
		if g == 0 {
			g = 1
		}
		r.gain[i] = int(math.Floor(g*4096 + 0.5))
	}
	r.made = map[pipeline.Format][]byte{}
	for y := range in.Format.Height {
		for x := range in.Format.Width {
			r.samples = append(r.samples, r.sample(x, y))
		}
	}
	return r
}

// referenceGamma is §4 in floating point; TestGammaTable shows that no code is near a border.
func referenceGamma(gamma float64) []int {
	gamma = math.Floor(gamma*100+0.5) / 100
	t := make([]int, 16384)
	for i := range t {
		t[i] = int(math.Floor(255*transfer(float64(i)/16383, gamma) + 0.5))
	}
	return t
}

func transfer(l, gamma float64) float64 {
	switch {
	case gamma != 0:
		return math.Pow(l, 1/gamma)
	case l < 0.018:
		return 4.5 * l
	}
	return 1.099*math.Pow(l, 0.45) - 0.099
}

func mirror(i, n int) int {
	if i < 0 {
		return -i
	}
	if i >= n {
		return 2*(n-1) - i
	}
	return i
}

// linear gives the samples the borders of §1.
func (r *reference) linear(x, y int) int {
	f := r.in.Format
	return r.samples[mirror(y, f.Height)*f.Width+mirror(x, f.Width)]
}

// sample is §2.
func (r *reference) sample(x, y int) int {
	at := y*r.in.Format.Stride + 2*x
	s := (int(r.in.Bytes[at]) + 256*int(r.in.Bytes[at+1])) % 1024
	color := x%2 + y%2 // 0 red, 1 green, 2 blue
	light := 0
	if s > r.black {
		light = s - r.black
	}
	d := (1023 - r.black) * 4096
	v := (2*light*r.gain[color]*16383 + d) / (2 * d)
	if v > 16383 {
		v = 16383
	}
	return v
}

type rgb [3]int

func (p rgb) add(q rgb, weight int) rgb {
	return rgb{p[0] + weight*q[0], p[1] + weight*q[1], p[2] + weight*q[2]}
}

// pixel is §3 and §4.
func (r *reference) pixel(x, y int) rgb {
	c := r.linear(x, y)
	cross := r.linear(x-1, y) + r.linear(x+1, y) + r.linear(x, y-1) + r.linear(x, y+1)
	diagonal := r.linear(x-1, y-1) + r.linear(x+1, y-1) + r.linear(x-1, y+1) + r.linear(x+1, y+1)
	beside := (r.linear(x-1, y) + r.linear(x+1, y) + 1) / 2
	above := (r.linear(x, y-1) + r.linear(x, y+1) + 1) / 2
	var p rgb
	switch {
	case x%2 == 0 && y%2 == 0:
		p = rgb{c, (cross + 2) / 4, (diagonal + 2) / 4}
	case x%2 == 1 && y%2 == 1:
		p = rgb{(diagonal + 2) / 4, (cross + 2) / 4, c}
	case y%2 == 0:
		p = rgb{beside, c, above}
	default:
		p = rgb{above, c, beside}
	}
	return rgb{r.gamma[p[0]], r.gamma[p[1]], r.gamma[p[2]]}
}

// halfPixel is §5.
func (r *reference) halfPixel(x, y int) rgb {
	x, y = 2*x, 2*y
	g := (r.linear(x+1, y) + r.linear(x, y+1) + 1) / 2
	return rgb{r.gamma[r.linear(x, y)], r.gamma[g], r.gamma[r.linear(x+1, y+1)]}
}

func floorShift(v, bits int) byte {
	q := int(math.Floor(float64(v) / float64(int(1)<<bits)))
	if q < 0 || q > 255 {
		panic("the reference leaves 8 bits")
	}
	return byte(q)
}

func uyvyLuma(p rgb) byte {
	return floorShift(1496*p[0]+5032*p[1]+508*p[2]+16*8192+4096, 13)
}

func jpegLuma(p rgb) byte {
	return floorShift(2449*p[0]+4809*p[1]+934*p[2]+4096, 13)
}

func (r *reference) picture(f pipeline.Format) []byte {
	if r.made[f] == nil {
		r.made[f] = r.convert(f)
	}
	return r.made[f]
}

// convert is §6 and §7.
func (r *reference) convert(f pipeline.Format) []byte {
	at := r.pixel
	if f.Width != r.in.Format.Width {
		at = r.halfPixel
	}
	out := make([]byte, f.Size())
	if f.Pixel == pipeline.UYVY {
		for y := range f.Height {
			for x := 0; x < f.Width; x += 2 {
				s := at(mirror(x-1, f.Width), y).add(at(x, y), 2).add(at(x+1, y), 1)
				d := out[y*f.Stride+2*x:]
				d[0] = floorShift(-1649*s[0]-5547*s[1]+7196*s[2]+128*65536+32768, 16)
				d[1] = uyvyLuma(at(x, y))
				d[2] = floorShift(7196*s[0]-6536*s[1]-660*s[2]+128*65536+32768, 16)
				d[3] = uyvyLuma(at(x+1, y))
			}
		}
		return out
	}
	cb := out[f.Stride*f.Height:]
	cr := cb[f.Stride/2*(f.Height/2):]
	for y := range f.Height {
		for x := range f.Width {
			out[y*f.Stride+x] = jpegLuma(at(x, y))
			if x%2 == 0 && y%2 == 0 {
				s := at(x, y).add(at(x+1, y), 1).add(at(x, y+1), 1).add(at(x+1, y+1), 1)
				i := y/2*(f.Stride/2) + x/2
				cb[i] = floorShift(-2765*s[0]-5427*s[1]+8192*s[2]+128*65536+32767, 16)
				cr[i] = floorShift(8192*s[0]-6860*s[1]-1332*s[2]+128*65536+32767, 16)
			}
		}
	}
	return out
}

func TestGammaTable(t *testing.T) {
	for _, gamma := range []float64{0, 1, 1.8, 2.2, 2.4, 4} {
		table, want := gammaTable(gamma), referenceGamma(gamma)
		for i, v := range want {
			// The nearest border k-1/2 must be farther off than the error of floating point.
			if exact := 255 * transfer(float64(i)/16383, gamma); math.Abs(exact-math.Floor(exact)-0.5) < 1e-9 {
				t.Errorf("gamma %v: sample %d is at a border", gamma, i)
			}
			if int(table[i]) != v {
				t.Fatalf("gamma %v: T[%d] = %d, want %d", gamma, i, table[i], v)
			}
		}
		if table[0] != 0 || table[16383] != 255 || table[65535] != 255 {
			t.Errorf("gamma %v: ends %d, %d, %d", gamma, table[0], table[16383], table[65535])
		}
	}
}
