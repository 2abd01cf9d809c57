// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"image"
	"image/png"
	"io"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
)

// newPNG returns a writer that writes a PNG file for each frame: pictures in R'G'B', a sensor's samples in grey, those
// of 8 bits as 8 bits and longer ones in the upper bits of 16.
func newPNG(_ context.Context, f pipeline.Format, path string) (writer, error) {
	return newFolder(path, ".png", f, pngs)
}

func pngs(f pipeline.Format) (still, error) {
	var picture func(pixels []byte) image.Image
	s, samples := f.Pixel.Samples()
	switch {
	case samples && s.Bits == 8:
		picture = func(b []byte) image.Image {
			return &image.Gray{Pix: b, Stride: f.Stride, Rect: image.Rect(0, 0, f.Width, f.Height)}
		}
	case samples:
		picture = func(b []byte) image.Image { return grey16(f, s, b) }
	case f.Pixel == pipeline.RGB24:
		picture = func(b []byte) image.Image { return rgb(f, b) }
	case f.Pixel == pipeline.UYVY:
		picture = func(b []byte) image.Image { return uyvy(f, b) }
	default:
		return nil, cannot(f, "PNG", "UYVY, RGB or a sensor's samples here", "export mcap or mkv")
	}
	encoder := png.Encoder{CompressionLevel: png.BestSpeed}
	return func(out io.Writer, _ *record.Frame, _ func() record.Settings, pixels []byte) error {
		return encoder.Encode(out, picture(pixels))
	}, nil
}

func grey16(f pipeline.Format, s pipeline.Samples, pixels []byte) image.Image {
	out := image.NewGray16(image.Rect(0, 0, f.Width, f.Height))
	line := make([]uint16, f.Width)
	for y := range f.Height {
		unpack(line, pixels[y*f.Stride:], s)
		to := out.Pix[y*out.Stride:]
		for x, v := range line {
			v <<= 16 - s.Bits
			to[2*x], to[2*x+1] = byte(v>>8), byte(v)
		}
	}
	return out
}

func rgb(f pipeline.Format, pixels []byte) image.Image {
	out := image.NewNRGBA(image.Rect(0, 0, f.Width, f.Height))
	for y := range f.Height {
		line, to := pixels[y*f.Stride:], out.Pix[y*out.Stride:]
		for x := range f.Width {
			to[4*x], to[4*x+1], to[4*x+2], to[4*x+3] = line[3*x], line[3*x+1], line[3*x+2], 255
		}
	}
	return out
}

// uyvy converts a UYVY picture to R'G'B' of full range (ITU-R BT.709 §3, BT.601 §2.5). Both pixels of a pair have the
// chroma of the pair.
func uyvy(f pipeline.Format, pixels []byte) image.Image {
	kr, kb := f.Color.Luma()
	black, luma, chroma := f.Color.Range()
	luma, chroma = 255/luma, 255/chroma
	const one = 1 << 16
	fixed := func(v float64) int32 { return int32(v*one + 0.5) }
	yy, rv := fixed(luma), fixed(2*(1-kr)*chroma)
	bu, gu, gv := fixed(2*(1-kb)*chroma), fixed(2*(1-kb)*kb/(1-kr-kb)*chroma), fixed(2*(1-kr)*kr/(1-kr-kb)*chroma)
	out := image.NewNRGBA(image.Rect(0, 0, f.Width, f.Height))
	clamp := func(v int32) byte { return byte(max(0, min(255, (v+one/2)>>16))) }
	for y := range f.Height {
		line, to := pixels[y*f.Stride:], out.Pix[y*out.Stride:]
		for x := range f.Width {
			pair := line[x/2*4:]
			l := (int32(pair[1+x%2*2]) - int32(black)) * yy
			u, v := int32(pair[0])-128, int32(pair[2])-128
			to[4*x], to[4*x+1], to[4*x+2], to[4*x+3] = clamp(l+rv*v), clamp(l-gu*u-gv*v), clamp(l+bu*u), 255
		}
	}
	return out
}
