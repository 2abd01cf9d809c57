// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"encoding/binary"
	"image/color"

	"github.com/tegracast/tegracast/pipeline"
)

// samplers return a pixel of a frame of 8-bit samples: Y', Cb and Cr, or R', G' and B'.
var samplers = map[pipeline.PixelFormat]func(f *pipeline.Frame, x, y int) (byte, byte, byte){
	pipeline.RGB24: func(f *pipeline.Frame, x, y int) (byte, byte, byte) {
		at := f.Bytes[y*f.Format.Stride+3*x:]
		return at[0], at[1], at[2]
	},
	pipeline.UYVY: func(f *pipeline.Frame, x, y int) (byte, byte, byte) {
		at := f.Bytes[y*f.Format.Stride+x/2*4:]
		return at[1+x%2*2], at[0], at[2]
	},
	pipeline.UYVP: func(f *pipeline.Frame, x, y int) (byte, byte, byte) { // RFC 4175 §4.3: Cb, Y0, Cr, Y1 of 10 bits each
		at := f.Bytes[y*f.Format.Stride+x/2*5:]
		first := binary.BigEndian.Uint32(at)
		return [2]byte{byte(first >> 14), byte(first<<6) | at[4]>>2}[x%2], at[0], byte(first >> 4)
	},
	pipeline.I420: func(f *pipeline.Frame, x, y int) (byte, byte, byte) {
		stride, luma := f.Format.Stride, f.Format.Stride*f.Format.Height
		at := luma + y/2*(stride/2) + x/2
		return f.Bytes[y*stride+x], f.Bytes[at], f.Bytes[at+luma/4]
	},
	pipeline.NV12: func(f *pipeline.Frame, x, y int) (byte, byte, byte) {
		stride := f.Format.Stride
		at := f.Bytes[stride*f.Format.Height+y/2*stride+x/2*2:]
		return f.Bytes[y*stride+x], at[0], at[1]
	},
	pipeline.Grey: func(f *pipeline.Frame, x, y int) (byte, byte, byte) { return f.Bytes[y*f.Format.Stride+x], 128, 128 },
}

// Shows reports whether frames with these pixels can be viewed as they are.
func Shows(p pipeline.PixelFormat) bool { return samplers[p] != nil || p == pipeline.MJPEG }

// convert writes the picture of f, which Shows, to a frame of I420 with the colours of JPEG, of any size: each pixel is the
// nearest one of f.
func convert(to, f *pipeline.Frame) {
	w, h := to.Format.Width, to.Format.Height
	luma, line := to.Format.Stride*h, to.Format.Stride
	sample, recolour := samplers[f.Format.Pixel], recolouring(f.Format)
	for y := range h {
		from := (2*y + 1) * f.Format.Height / (2 * h)
		for x := range w {
			a, b, c := recolour(sample(f, (2*x+1)*f.Format.Width/(2*w), from))
			to.Bytes[y*line+x] = a
			if x%2 == 0 && y%2 == 0 {
				at := luma + y/2*(line/2) + x/2
				to.Bytes[at], to.Bytes[at+luma/4] = b, c
			}
		}
	}
}

// recolouring returns the function from a sample of a format to Y', Cb and Cr of BT.601 at full range (JFIF).
func recolouring(f pipeline.Format) func(a, b, c byte) (y, cb, cr byte) {
	if f.Pixel == pipeline.RGB24 {
		return color.RGBToYCbCr
	}
	kr, kb := f.Color.Luma()
	black, luma, chroma := f.Color.Range()
	luma, chroma = 255/luma, 255/chroma
	clamp := func(v float64) byte { return byte(max(0, min(v+0.5, 255))) }
	return func(a, b, c byte) (y, cb, cr byte) {
		l, u, v := (float64(a)-black)*luma, (float64(b)-128)*chroma, (float64(c)-128)*chroma
		red, blue := l+2*(1-kr)*v, l+2*(1-kb)*u
		green := (l - kr*red - kb*blue) / (1 - kr - kb)
		l = 0.299*red + 0.587*green + 0.114*blue
		return clamp(l), clamp((blue-l)/1.772 + 128), clamp((red-l)/1.402 + 128)
	}
}
