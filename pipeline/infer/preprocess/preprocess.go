// SPDX-License-Identifier: Apache-2.0

package preprocess

import (
	"bytes"
	"fmt"
	"image"
	"unsafe"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

// Config describes the frames and the tensor. Samples are from 0 to 255.
type Config struct {
	Format                  pipeline.Format // Grey, RGB24, UYVY, NV12 or I420, not packet-ready
	Crop                    image.Rectangle // part of the frame; empty: the whole
	Width, Height, Channels int             // of the tensor; 1 channel is luma, 3 are R'G'B'
	Type                    tensor.Type     // Float32, Float16 or Uint8
	NHWC                    bool            // else NCHW
	BGR                     bool            // order of the colours; else RGB
	Letterbox               bool            // keep the aspect ratio; else stretch
	Fill                    float64         // sample around the picture, the same for every channel
	Mean, Scale             [3]float64      // tensor = (sample - Mean) * Scale, by channel in the tensor's order
}

// A Preprocessor makes tensors on the CPU. It may be used by one goroutine at a time.
type Preprocessor struct {
	plan
	kernels kernels
	groups  []taps       // of eight pixels each, from the picture's first on
	last    []taps       // the last eight pixels, if they are no multiple of eight
	span    [2]int       // of the pixels of a line that are copied or zipped: first, and one after the last
	lines   [2]line      // nothing, if the kernel reads the frame
	chroma  []byte       // a line of I420
	values  [3][]float32 // a line of the picture, unless it goes straight into the tensor
	typed   [3][]byte    // the same in the tensor's type, for NHWC
	filler  [3][]byte    // a line of the fill; for NHWC the first has all channels
}

// A line is a line of the frame in a packed format, in memory with room for 16 bytes.
type line struct {
	y     int // -1: none
	bytes []byte
}

// New returns a Preprocessor, or an error that says what cannot be.
func New(c Config) (*Preprocessor, error) {
	plan, err := newPlan(c)
	if err != nil {
		return nil, err
	}
	p := &Preprocessor{plan: plan, kernels: fastest()}
	f, size := c.Format, p.picture.Dx()
	layout, length := f.Pixel, f.Pixel.LineBytes(f.Width)
	if p.span = [2]int{0, f.Width}; planar(f.Pixel) {
		p.span = [2]int{p.crop.Min.X &^ 1, (p.crop.Max.X + 1) &^ 1}
		layout, length = pipeline.UYVY, 2*(p.span[1]-p.span[0])
		p.chroma = make([]byte, length/2)
	}
	if short := length < tapBytes; short || planar(f.Pixel) {
		length = max(length, tapBytes)
		p.lines = [2]line{{-1, make([]byte, length)}, {-1, make([]byte, length)}}
	}
	at := func(x int) taps {
		return newTaps(p.columns, samples(layout, c.reversed()), x, p.crop.Min.X-p.span[0], length)
	}
	for x := 0; x+group <= size; x += group {
		p.groups = append(p.groups, at(x))
	}
	if size%group != 0 {
		p.last = []taps{at(max(0, size-group))}
	}
	p.makeBuffers()
	return p, nil
}

// direct reports whether the kernel writes into the tensor.
func (p *Preprocessor) direct() bool {
	return p.config.Type == tensor.Float32 && !p.config.NHWC && p.picture.Dx() >= group
}

func (p *Preprocessor) makeBuffers() {
	width := p.picture.Dx()
	var pixels []byte // one, of the fill
	for c := range p.config.Channels {
		if !p.direct() {
			p.values[c] = make([]float32, max(width, group))
		}
		if p.config.NHWC {
			p.typed[c] = make([]byte, width*p.config.Type.Size())
		}
		pixel := element(p.fill[c], p.config.Type)
		if !p.config.NHWC {
			p.filler[c] = bytes.Repeat(pixel, p.config.Width)
			continue
		}
		pixels = append(pixels, pixel...)
	}
	if p.config.NHWC {
		p.filler[0] = bytes.Repeat(pixels, p.config.Width)
	}
}

// Process makes the tensor of a frame. pixels has at least Format.Size bytes; into has the bytes of Info, all of which are
// written, and is aligned to its elements. Process allocates no memory.
func (p *Preprocessor) Process(pixels, into []byte) {
	pixels, into = pixels[:p.config.Format.Size()], into[:p.bytes]
	p.lines[0].y, p.lines[1].y = -1, -1
	for y := range p.config.Height {
		if y < p.picture.Min.Y || y >= p.picture.Max.Y {
			p.fillLine(into, y, 0, p.config.Width)
			continue
		}
		p.fillLine(into, y, 0, p.picture.Min.X)
		p.fillLine(into, y, p.picture.Max.X, p.config.Width)
		r := &p.rows[y-p.picture.Min.Y]
		p.pictureLine(into, y, p.line(pixels, r.first), p.line(pixels, r.second), r.fraction())
	}
}

// at returns the position in the tensor of a channel's pixel.
func (p *Preprocessor) at(x, y, channel int) int {
	i := (channel*p.config.Height+y)*p.config.Width + x
	if p.config.NHWC {
		i = (y*p.config.Width+x)*p.config.Channels + channel
	}
	return i * p.config.Type.Size()
}

// fillLine fills the pixels from x to before end.
func (p *Preprocessor) fillLine(into []byte, y, x, end int) {
	for c := range p.config.Channels {
		if f := p.filler[c]; len(f) > 0 {
			copy(into[p.at(x, y, c):], f[:len(f)/p.config.Width*(end-x)])
		}
	}
}

// line returns line y of the frame, counted from the crop's first, in a packed format.
func (p *Preprocessor) line(pixels []byte, y int) []byte {
	f := p.config.Format
	y += p.crop.Min.Y
	luma := pixels[y*f.Stride:][:f.Pixel.LineBytes(f.Width)]
	if p.lines[0].bytes == nil {
		return luma
	}
	l := &p.lines[y&1] // neighbours do not displace each other
	if l.y == y {
		return l.bytes
	}
	l.y = y
	begin, end := p.span[0], p.span[1]
	switch second := pixels[f.Stride*f.Height:]; f.Pixel {
	case pipeline.NV12:
		p.kernels.zip(l.bytes, second[y/2*f.Stride:][begin:end], luma[begin:end])
	case pipeline.I420:
		plane := f.Stride / 2 * (f.Height / 2)
		cb, cr := second[y/2*(f.Stride/2):][begin/2:end/2], second[plane+y/2*(f.Stride/2):][begin/2:end/2]
		p.kernels.zip(p.chroma, cb, cr)
		p.kernels.zip(l.bytes, p.chroma, luma[begin:end])
	default:
		copy(l.bytes, luma)
	}
	return l.bytes
}

// pictureLine makes the picture's part of line y out of two lines of the frame.
func (p *Preprocessor) pictureLine(into []byte, y int, a, b []byte, weight float32) {
	var out [3]*float32
	size := p.picture.Dx()
	direct := p.direct()
	for c := range p.config.Channels {
		if direct {
			out[c] = (*float32)(unsafe.Pointer(&into[p.at(p.picture.Min.X, y, c):][:4*size][0]))
		} else {
			out[c] = &p.values[c][0]
		}
	}
	if len(p.groups) > 0 {
		p.kernels.sample(out, a, b, p.groups, &p.colours, weight)
	}
	if len(p.last) > 0 {
		for c := range p.config.Channels {
			out[c] = (*float32)(unsafe.Add(unsafe.Pointer(out[c]), 4*max(0, size-group)))
		}
		p.kernels.sample(out, a, b, p.last, &p.colours, weight)
	}
	if direct {
		return
	}
	for c := range p.config.Channels {
		if p.config.NHWC {
			p.convert(p.typed[c], p.values[c][:size])
		} else {
			p.convert(into[p.at(p.picture.Min.X, y, c):], p.values[c][:size])
		}
	}
	if p.config.NHWC {
		p.interleave(into[p.at(p.picture.Min.X, y, 0):])
	}
}

// convert writes values in the tensor's type.
func (p *Preprocessor) convert(to []byte, values []float32) {
	switch p.config.Type {
	case tensor.Float16:
		p.kernels.half(to[:2*len(values)], values)
	case tensor.Uint8:
		p.kernels.bytes(to[:len(values)], values)
	default:
		copy(to, unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), 4*len(values)))
	}
}

// interleave writes the channels of a line pixel by pixel.
func (p *Preprocessor) interleave(to []byte) {
	switch p.config.Type {
	case tensor.Float16:
		interleave[uint16](to, &p.typed)
	case tensor.Uint8:
		interleave[byte](to, &p.typed)
	default:
		interleave[uint32](to, &p.typed)
	}
}

func interleave[E any](to []byte, from *[3][]byte) {
	a := elements[E](from[0])
	if from[1] == nil {
		copy(to, from[0])
		return
	}
	b, c, out := elements[E](from[1])[:len(a)], elements[E](from[2])[:len(a)], elements[E](to[:3*len(from[0])])
	for i, v := range a {
		o := out[3*i:][:3]
		o[0], o[1], o[2] = v, b[i], c[i]
	}
}

func elements[E any](b []byte) []E {
	var e E
	return unsafe.Slice((*E)(unsafe.Pointer(&b[0])), len(b)/int(unsafe.Sizeof(e)))
}

// Placement returns where in the frame the tensor's pixels come from.
func (p *plan) Placement() tensor.Placement {
	sx, sy := float64(p.crop.Dx())/float64(p.picture.Dx()), float64(p.crop.Dy())/float64(p.picture.Dy())
	return tensor.Placement{
		X: float64(p.crop.Min.X) - sx*float64(p.picture.Min.X), Y: float64(p.crop.Min.Y) - sy*float64(p.picture.Min.Y),
		ScaleX: sx, ScaleY: sy, Width: p.config.Width, Height: p.config.Height,
	}
}

// Info returns the tensor's type and shape, [1 C H W] or [1 H W C].
func (p *plan) Info() tensor.Info { return p.config.info() }

func (c *Config) info() tensor.Info {
	shape := []int64{1, int64(c.Channels), int64(c.Height), int64(c.Width)}
	if c.NHWC {
		shape = []int64{1, int64(c.Height), int64(c.Width), int64(c.Channels)}
	}
	return tensor.Info{Name: "input", Type: c.Type, Shape: shape}
}

// element returns a value in the tensor's type.
func element(v float32, t tensor.Type) []byte {
	b := make([]byte, t.Size())
	switch t {
	case tensor.Float16:
		halfGo(b, []float32{v})
	case tensor.Uint8:
		bytesGo(b, []float32{v})
	default:
		copy(b, unsafe.Slice((*byte)(unsafe.Pointer(&v)), 4))
	}
	return b
}

// ycc reports whether samples are Y, Cb and Cr.
func (c *Config) ycc() bool {
	return c.Format.Pixel != pipeline.RGB24 && c.Format.Pixel != pipeline.Grey
}

// reversed reports whether samples of R'G'B' are taken in the order of the tensor's channels.
func (c *Config) reversed() bool { return c.BGR && c.Channels == 3 && c.Format.Pixel == pipeline.RGB24 }

func planar(p pipeline.PixelFormat) bool { return p == pipeline.NV12 || p == pipeline.I420 }

var formats = []pipeline.PixelFormat{pipeline.Grey, pipeline.RGB24, pipeline.UYVY, pipeline.NV12, pipeline.I420}

func refuse(format string, a ...any) error {
	return fmt.Errorf("preprocess: %w", fmt.Errorf(format, a...))
}
