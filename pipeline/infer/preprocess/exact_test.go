// SPDX-License-Identifier: Apache-2.0

package preprocess

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

func rat(a, b int64) *big.Rat { return big.NewRat(a, b) }

func sum(list ...*big.Rat) *big.Rat {
	s := new(big.Rat)
	for _, r := range list {
		s.Add(s, r)
	}
	return s
}

func times(a, b *big.Rat) *big.Rat { return new(big.Rat).Mul(a, b) }
func less(a, b *big.Rat) *big.Rat  { return new(big.Rat).Sub(a, b) }

// exactSample returns a sample of the frame: of R, G and B, or of Y, Cb and Cr.
func exactSample(f pipeline.Format, pixels []byte, x, y, channel int) *big.Rat {
	at, plane := y*f.Stride, f.Stride*f.Height
	switch {
	case f.Pixel == pipeline.RGB24:
		at += 3*x + channel
	case f.Pixel == pipeline.UYVY && channel == 0:
		at += 2*x + 1
	case f.Pixel == pipeline.UYVY:
		at += x/2*4 + 2*(channel-1)
	case channel == 0:
		at += x
	case f.Pixel == pipeline.NV12:
		at = plane + y/2*f.Stride + x/2*2 + channel - 1
	case f.Pixel == pipeline.I420:
		at = plane + (channel-1)*plane/4 + y/2*(f.Stride/2) + x/2
	default:
		at += x // grey
	}
	return rat(int64(pixels[at]), 1)
}

// exactColour returns the colours R, G and B, or luma for another number, of samples.
func exactColour(f pipeline.Format, s [3]*big.Rat, colour int) *big.Rat {
	kr, kb := rat(2126, 10000), rat(722, 10000)
	if f.Color == pipeline.BT601Full || f.Color == pipeline.BT601Limited {
		kr, kb = rat(299, 1000), rat(114, 1000)
	}
	kg := less(less(rat(1, 1), kr), kb)
	black, y, c := rat(0, 1), rat(1, 1), rat(1, 1)
	if f.Color == pipeline.BT709Limited || f.Color == pipeline.BT601Limited {
		black, y, c = rat(16, 1), rat(255, 219), rat(255, 224)
	}
	luma := times(less(s[0], black), y)
	switch {
	case f.Pixel == pipeline.Grey:
		return luma
	case f.Pixel == pipeline.RGB24 && colour > 2:
		return times(less(sum(times(kr, s[0]), times(kg, s[1]), times(kb, s[2])), black), y)
	case f.Pixel == pipeline.RGB24:
		return times(less(s[colour], black), y)
	case colour > 2:
		return luma
	}
	cb, cr := times(less(s[1], rat(128, 1)), c), times(less(s[2], rat(128, 1)), c)
	red := sum(luma, times(times(rat(2, 1), less(rat(1, 1), kr)), cr))
	blue := sum(luma, times(times(rat(2, 1), less(rat(1, 1), kb)), cb))
	return [3]*big.Rat{red, times(less(less(luma, times(kr, red)), times(kb, blue)), new(big.Rat).Inv(kg)), blue}[colour]
}

// between returns the pixels at a position of a side of the crop, and the weight of the second.
func between(x, n, side int) (first, second int, part *big.Rat) {
	at := less(rat(int64((2*x+1)*side), int64(2*n)), rat(1, 2))
	if at.Sign() < 0 {
		return 0, 0, rat(0, 1)
	}
	whole := int(new(big.Int).Quo(at.Num(), at.Denom()).Int64())
	return min(whole, side-1), min(whole+1, side-1), less(at, rat(int64(whole), 1))
}

// exact returns the tensor's value.
func exact(p *Preprocessor, pixels []byte, x, y, channel int) float64 {
	c, colour := p.config, channel
	if c.BGR {
		colour = 2 - channel
	}
	if c.Channels == 1 {
		colour = 3
	}
	value := new(big.Rat).SetFloat64(c.Fill)
	if in := p.picture; x >= in.Min.X && x < in.Max.X && y >= in.Min.Y && y < in.Max.Y {
		x0, x1, px := between(x-in.Min.X, in.Dx(), p.crop.Dx())
		y0, y1, py := between(y-in.Min.Y, in.Dy(), p.crop.Dy())
		var s [3]*big.Rat
		for i := range s {
			at := func(x, y int) *big.Rat {
				return exactSample(c.Format, pixels, p.crop.Min.X+x, p.crop.Min.Y+y, i)
			}
			mix := func(a, b, part *big.Rat) *big.Rat { return sum(a, times(less(b, a), part)) }
			s[i] = mix(mix(at(x0, y0), at(x1, y0), px), mix(at(x0, y1), at(x1, y1), px), py)
		}
		value = exactColour(c.Format, s, colour)
	}
	v, _ := value.Float64()
	return (min(max(v, 0), 255) - c.Mean[channel]) * c.Scale[channel]
}

// value returns a value of the tensor.
func value(p *Preprocessor, b []byte, x, y, channel int) float64 {
	switch b = b[p.at(x, y, channel):]; p.config.Type {
	case tensor.Uint8:
		return float64(b[0])
	case tensor.Float16:
		h := int(binary.LittleEndian.Uint16(b))
		size := math.Ldexp(float64(h&0x3ff|0x400), h>>10&31-25)
		if h>>10&31 == 0 {
			size = math.Ldexp(float64(h&0x3ff), -24)
		}
		return math.Copysign(size, float64(int16(h)))
	}
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
}

// TestAgainstRationalNumbers compares tensors with the definition in rational numbers, in which no weight is rounded.
func TestAgainstRationalNumbers(t *testing.T) {
	var worst float64
	for i := range 120 {
		rnd := rand.New(rand.NewPCG(uint64(i), 1))
		c := randomConfig(rnd, 22)
		p := preprocessor(t, c)
		pixels, got := make([]byte, c.Format.Size()), make([]byte, p.bytes)
		noise(rnd, pixels)
		p.Process(pixels, got)
		for n := range c.Width * c.Height * c.Channels {
			x, y, channel := n%c.Width, n/c.Width%c.Height, n/c.Width/c.Height
			want, scale := exact(p, pixels, x, y, channel), math.Abs(c.Scale[channel])
			allowed := 0.009 * scale * 255 / 219
			if c.ycc() {
				allowed = 0.009 * scale * 3.4 // the factors of luma and a chroma together
			}
			switch c.Type {
			case tensor.Uint8:
				want, allowed = min(max(want, 0), 255), allowed+0.5
			case tensor.Float16:
				allowed += math.Abs(want)/2048 + 0x1p-25
			default:
				worst = max(worst, math.Abs(value(p, got, x, y, channel)-want)/scale)
			}
			if v := value(p, got, x, y, channel); !(math.Abs(v-want) <= allowed) {
				t.Fatalf("%d: %+v: channel %d at (%d, %d) is %v, want %v within %v", i, c, channel, x, y, v, want, allowed)
			}
		}
	}
	t.Logf("float32 is at most %.4f samples from the real numbers", worst)
}
