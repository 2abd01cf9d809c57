package pipeline

import (
	"errors"
	"fmt"
)

// A PixelFormat is the V4L2 FourCC of a picture's layout in memory.
type PixelFormat uint32

// The layouts that tegracast knows.
const (
	RGGB10 PixelFormat = 'R' | 'G'<<8 | '1'<<16 | '0'<<24 // Bayer RGGB, 10 bits in little-endian 16-bit words, upper bits zero
	UYVY   PixelFormat = 'U' | 'Y'<<8 | 'V'<<16 | 'Y'<<24 // 4:2:2, 8 bits, Cb Y0 Cr Y1
	I420   PixelFormat = 'Y' | 'U'<<8 | '1'<<16 | '2'<<24 // 4:2:0, 8 bits, planes Y, Cb, Cr; chroma planes have half the stride
)

func (p PixelFormat) String() string {
	if p == 0 {
		return "none"
	}
	return string([]byte{byte(p), byte(p >> 8), byte(p >> 16), byte(p >> 24)})
}

// Colorimetry is the matrix and the range of Y'CbCr samples.
type Colorimetry uint8

const (
	ColorNone    Colorimetry = iota // sensor samples: no colour space
	BT709Limited                    // ITU-R BT.709, Y' 16–235, CbCr 16–240
	BT601Full                       // ITU-R BT.601 at full range, as JFIF wants it
)

func (c Colorimetry) String() string {
	return [...]string{"none", "bt709-limited", "bt601-full"}[c]
}

// MemoryKind says where a frame's bytes are and who may read them.
type MemoryKind uint8

const (
	MemoryHost          MemoryKind = iota // cached host memory: CPU and device
	MemoryWriteCombined                   // host memory that the CPU must not read: uncached reads are ruinous
	MemoryDevice                          // not visible to the CPU
)

func (m MemoryKind) String() string { return [...]string{"host", "write-combined", "device"}[m] }

// Rate is a frame rate as the fraction Num/Den in frames a second; the zero Rate is "no fixed rate".
type Rate struct{ Num, Den int }

func (r Rate) String() string {
	switch {
	case r.Num == 0:
		return "variable"
	case r.Den == 1:
		return fmt.Sprint(r.Num)
	}
	return fmt.Sprintf("%d/%d", r.Num, r.Den)
}

// Format describes frames at one point of the graph. Formats are comparable with ==.
type Format struct {
	Pixel  PixelFormat
	Width  int // pixels
	Height int // lines
	Stride int // bytes from one line of the first plane to the next
	Rate   Rate
	Color  Colorimetry
	Memory MemoryKind

	// Packet-ready memory: every PacketPitch bytes begin with HeaderGap bytes that the packetizer fills.
	// Both are zero for plain pictures.
	PacketPitch int
	HeaderGap   int
}

// maxStride keeps the size of a frame far from the end of the integers.
const maxStride = 1 << 24

// ErrFormat is wrapped by every error that says why a format cannot be.
var ErrFormat = errors.New("impossible format")

// NewFormat returns the plain format (tight stride, host memory) of the given layout and geometry.
func NewFormat(p PixelFormat, width, height int, rate Rate) (Format, error) {
	f := Format{Pixel: p, Width: width, Height: height, Rate: rate}
	switch p {
	case RGGB10:
		f.Stride = 2 * width
	case UYVY:
		f.Stride, f.Color = 2*width, BT709Limited
	case I420:
		f.Stride, f.Color = width, BT601Full
	}
	return f, f.Validate()
}

// Validate returns an error that wraps ErrFormat and names the field, its value and the rule.
func (f Format) Validate() error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%w: %s %dx%d: %s", ErrFormat, f.Pixel, f.Width, f.Height, fmt.Sprintf(format, a...))
	}
	if f.Width < 2 || f.Height < 2 || f.Width > 1<<15 || f.Height > 1<<15 {
		return bad("width and height must be from 2 to 32768")
	}
	line := 0
	switch f.Pixel {
	case RGGB10:
		line = 2 * f.Width
	case UYVY:
		if f.Width%2 != 0 {
			return bad("4:2:2 needs an even width")
		}
		line = 2 * f.Width
	case I420:
		if f.Width%2 != 0 || f.Height%2 != 0 {
			return bad("4:2:0 needs an even width and an even height")
		}
		line = f.Width
		if f.Stride%2 != 0 {
			return bad("stride %d must be even", f.Stride)
		}
	default:
		return bad("unknown pixel format")
	}
	if f.Stride > maxStride {
		return bad("stride %d is more than %d bytes", f.Stride, maxStride)
	}
	if f.Stride < line {
		return bad("stride %d is less than a line's %d bytes", f.Stride, line)
	}
	if f.Rate.Num < 0 || f.Rate.Den < 0 || (f.Rate.Num > 0 && f.Rate.Den == 0) {
		return bad("rate %d/%d", f.Rate.Num, f.Rate.Den)
	}
	return nil
}

// Size is the number of bytes of a frame.
func (f Format) Size() int {
	if f.Pixel == I420 {
		return f.Stride * f.Height * 3 / 2
	}
	return f.Stride * f.Height
}

func (f Format) String() string {
	return fmt.Sprintf("%s %dx%d stride %d %s %s/s in %s memory",
		f.Pixel, f.Width, f.Height, f.Stride, f.Color, f.Rate, f.Memory)
}
