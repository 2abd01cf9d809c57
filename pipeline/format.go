// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"errors"
	"fmt"
)

// Colorimetry is the matrix and range of Y'CbCr samples.
type Colorimetry uint8

const (
	ColorNone    Colorimetry = iota // sensor samples, which have no colour space
	BT709Limited                    // ITU-R BT.709, Y' (and R'G'B') 16–235, CbCr 16–240; four times these values at 10 bits
	BT601Full                       // ITU-R BT.601 at full range, as JFIF requires
	BT709Full                       // ITU-R BT.709 at full range
	BT601Limited                    // ITU-R BT.601 with the range of BT709Limited
)

func (c Colorimetry) String() string {
	names := [...]string{"none", "bt709-limited", "bt601-full", "bt709-full", "bt601-limited"}
	if int(c) >= len(names) {
		return fmt.Sprintf("colorimetry %d", uint8(c))
	}
	return names[c]
}

// Luma returns the parts of R' and B' in Y' (BT.709 §3, BT.601 §2.5).
func (c Colorimetry) Luma() (red, blue float64) {
	if c == BT601Full || c == BT601Limited {
		return 0.299, 0.114
	}
	return 0.2126, 0.0722
}

// Range returns black as 8-bit Y', and the ranges of Y' and of Cb and Cr. Sensor samples have the full one.
func (c Colorimetry) Range() (black, luma, chroma float64) {
	if c == BT709Limited || c == BT601Limited {
		return 16, 219, 224
	}
	return 0, 255, 255
}

// MemoryKind is the kind of memory that holds a frame, which determines who may read it.
type MemoryKind uint8

const (
	MemoryHost          MemoryKind = iota // cached host memory: readable by CPU and device
	MemoryWriteCombined                   // host memory that the CPU must not read, because uncached reads are extremely slow
	MemoryDevice                          // not visible to the CPU
)

func (m MemoryKind) String() string { return [...]string{"host", "write-combined", "device"}[m] }

// Rate is a frame rate in frames per second, as the fraction Num/Den. The zero Rate means "no fixed rate".
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

// Format describes the frames at one point of the graph. Formats are comparable with ==.
type Format struct {
	Pixel  PixelFormat
	Width  int // pixels
	Height int // lines
	Stride int // bytes from one line of the first plane to the next
	Rate   Rate
	Color  Colorimetry
	Memory MemoryKind

	// Packet-ready memory: each PacketPitch bytes begin with HeaderGap bytes that the packetizer fills in; the rest is
	// the payload of one packet. A line is a whole number of payloads, each of which is a whole number of pixel groups.
	// Lines follow one another without padding (Stride is the length of a line without the gaps). Both fields are zero
	// for plain pictures.
	PacketPitch int
	HeaderGap   int
}

// maxStride is the maximum stride in bytes, so that the size of a frame cannot overflow an integer.
const maxStride = 1 << 24

// ErrFormat is wrapped by every error about an impossible format.
var ErrFormat = errors.New("impossible format")

// NewFormat returns the plain format (tight stride, host memory, the usual Color of the layout) with the given layout,
// geometry and rate, and the error of Validate.
func NewFormat(p PixelFormat, width, height int, rate Rate) (Format, error) {
	f := Format{Pixel: p, Width: width, Height: height, Rate: rate, Stride: p.LineBytes(width)}
	switch p {
	case UYVY, UYVP, NV12:
		f.Color = BT709Limited
	case RGB24:
		f.Color = BT709Full
	case I420, MJPEG:
		f.Color = BT601Full
	}
	return f, f.Validate()
}

// As returns the format with pixels p that a stage can make from frames of format f; turned exchanges width and height.
// If p is 0 or the pixel format of f, As returns f.
func (f Format) As(p PixelFormat, turned bool) (Format, error) {
	if p == 0 || p == f.Pixel {
		return f, nil
	}
	width, height := f.Width, f.Height
	if turned {
		width, height = height, width
	}
	as, err := NewFormat(p, width, height, f.Rate)
	if p == Grey {
		as.Color = BT709Limited
	}
	return as, err
}

// Validate returns nil for a possible format, or an error that wraps ErrFormat and states the values and the violated
// rule.
func (f Format) Validate() error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%w: %s %dx%d: %s", ErrFormat, f.Pixel, f.Width, f.Height, fmt.Sprintf(format, a...))
	}
	if f.Width < 2 || f.Height < 2 || f.Width > 1<<15 || f.Height > 1<<15 {
		return bad("width and height must be from 2 to 32768")
	}
	group, line := f.Pixel.Group(), f.Pixel.LineBytes(f.Width)
	switch {
	case line == 0:
		return bad("unknown pixel format")
	case f.Pixel.planar420() && (f.Width%2 != 0 || f.Height%2 != 0):
		return bad("4:2:0 needs an even width and an even height")
	case f.Pixel == I420 && f.Stride%2 != 0:
		return bad("stride %d must be even", f.Stride)
	case (f.Pixel == UYVY || f.Pixel == UYVP) && f.Width%2 != 0:
		return bad("4:2:2 needs an even width")
	case f.Width%group.Pixels != 0:
		return bad("width must be a multiple of %d: so many pixels share %d bytes", group.Pixels, group.Bytes)
	case f.Stride > maxStride:
		return bad("stride %d is more than %d bytes", f.Stride, maxStride)
	case f.Stride < line:
		return bad("stride %d is less than a line's %d bytes", f.Stride, line)
	case f.Rate.Num < 0 || f.Rate.Den < 0 || (f.Rate.Num > 0 && f.Rate.Den == 0):
		return bad("rate %d/%d", f.Rate.Num, f.Rate.Den)
	}
	if why := f.packets(group, line); why != "" {
		return bad("%s", why)
	}
	return nil
}

// packets returns the reason why the packet-ready layout is impossible, or "".
func (f Format) packets(group PixelGroup, line int) string {
	payload := f.PacketPitch - f.HeaderGap
	switch {
	case f.PacketPitch == 0 && f.HeaderGap == 0:
		return ""
	case f.HeaderGap < 0 || f.PacketPitch > 1<<16 || payload <= 0:
		return fmt.Sprintf("packets of %d bytes with %d of headers", f.PacketPitch, f.HeaderGap)
	case f.Pixel.planar420():
		return "planes cannot be packet-ready"
	case f.Stride != line:
		return fmt.Sprintf("stride %d must be a line's %d bytes in packet-ready memory", f.Stride, line)
	case line%payload != 0 || payload%group.Bytes != 0:
		return fmt.Sprintf("a line's %d bytes are no whole number of packets with %d bytes of %d-byte pixel groups", line, payload, group.Bytes)
	}
	return ""
}

// Size returns the size of a frame in bytes.
func (f Format) Size() int {
	size := f.Stride * f.Height
	if f.Pixel.planar420() {
		size += size / 2
	}
	if f.PacketPitch > 0 {
		size = size / (f.PacketPitch - f.HeaderGap) * f.PacketPitch
	}
	return size
}

func (f Format) String() string {
	return fmt.Sprintf("%s %dx%d stride %d %s %s/s in %s memory",
		f.Pixel, f.Width, f.Height, f.Stride, f.Color, f.Rate, f.Memory)
}
