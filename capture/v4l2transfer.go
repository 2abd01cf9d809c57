// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/binary"
	"fmt"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/videodev"
)

// A v4l2Code is a format of V4L2 that arrives as a pixel format of the pipeline.
type v4l2Code struct {
	code   uint32 // four-character code
	pixel  pipeline.PixelFormat
	line   func(width int) int   // bytes of a line of the device, if they differ from those of pixel
	change func(dst, src []byte) // makes a line of pixel; nil: the bytes are the same
	says   string
	planes int // in separate memory; 0: one
}

// otherCodes are the formats of V4L2 that pipeline.PixelFormat does not have by the same code.
var otherCodes = []v4l2Code{
	{code: videodev.Code("YUYV"), pixel: pipeline.UYVY, change: swapBytes, says: "YUYV made UYVY"},
	{code: videodev.Code("NM12"), pixel: pipeline.NV12, planes: 2},
	{code: videodev.Code("YM12"), pixel: pipeline.I420, planes: 3},
	{code: videodev.Code("pREE"), pixel: pipeline.RGGB14, line: packed14, change: unpack14, says: "RAW14 unpacked"},
	{code: videodev.Code("pgEE"), pixel: pipeline.GRBG14, line: packed14, change: unpack14, says: "RAW14 unpacked"},
	{code: videodev.Code("pGEE"), pixel: pipeline.GBRG14, line: packed14, change: unpack14, says: "RAW14 unpacked"},
	{code: videodev.Code("pBEE"), pixel: pipeline.BGGR14, line: packed14, change: unpack14, says: "RAW14 unpacked"},
	{code: videodev.Code("Y14P"), pixel: pipeline.Mono14, line: packed14, change: unpack14, says: "RAW14 unpacked"},
}

// v4l2Codes returns the formats of V4L2 that arrive as pixel, best first.
func v4l2Codes(pixel pipeline.PixelFormat) []v4l2Code {
	list := []v4l2Code{{code: uint32(pixel), pixel: pixel}}
	for _, c := range otherCodes {
		if c.pixel == pixel {
			list = append(list, c)
		}
	}
	return list
}

// v4l2CodeOf returns what a format of V4L2 arrives as, or false if the pipeline has no such pixels.
func v4l2CodeOf(code uint32) (v4l2Code, bool) {
	for _, c := range otherCodes {
		if c.code == code {
			return c, true
		}
	}
	p := pipeline.PixelFormat(code)
	return v4l2Code{code: code, pixel: p}, p.Group().Pixels > 0
}

// A part is a plane of pixels: where its lines lie in the device's buffer, and where in a frame.
type part struct {
	plane      int // of the buffer
	from, to   int // offset of the first line
	wide, tall int // bytes and lines; wide is that of the device
	stride     int // of the device's lines
	pitch      int // of the frame's lines
}

// A transfer describes how a buffer of a device becomes a frame.
type transfer struct {
	format  pipeline.Format
	layout  videodev.Layout
	parts   []part
	need    []int // bytes that a full frame has at least, by plane of the buffer
	change  func(dst, src []byte)
	says    string
	doubt   string // what is not exact about the colours
	direct  bool   // the device can write frames itself
	inPlace bool   // what the device writes into a slot can be made a frame there
}

// newTransfer returns the transfer of buffers of a layout. shift is the number of bits by which 16-bit samples stand too
// high; tight makes frames without padding between lines, even if the device has some.
func newTransfer(c v4l2Code, l videodev.Layout, rate pipeline.Rate, shift int, tight bool) (*transfer, error) {
	f, err := pipeline.NewFormat(c.pixel, int(l.Width), int(l.Height), rate)
	if err != nil {
		return nil, err
	}
	if f.Pixel == pipeline.MJPEG {
		return newFileTransfer(f, l)
	}
	t := &transfer{layout: l, change: c.change, says: c.says}
	f.Color, t.doubt = colorOf(f, l)
	t.format = f
	line := f.Stride
	if c.line != nil {
		line = c.line(f.Width)
	}
	stride := int(l.Planes[0].Stride)
	if stride == 0 {
		stride = line
	}
	if samples, raw := f.Pixel.Samples(); raw && shift != 0 && c.change == nil && !samples.Packed && samples.Bits > 8 && samples.Bits < 16 {
		t.change, t.says = shiftDown(shift, samples.Bits), fmt.Sprintf("samples shifted down by %d bits", shift)
	}
	padded := stride != line
	if padded && !tight && c.line == nil && (f.Pixel != pipeline.I420 || stride%2 == 0) {
		t.format.Stride = stride
	}
	t.parts = partsOf(t.format, c, l, line, stride)
	t.need = make([]int, len(l.Planes))
	t.direct, t.inPlace = t.change == nil, c.line == nil
	for _, p := range t.parts {
		if p.plane >= len(l.Planes) || p.stride < p.wide {
			return nil, fmt.Errorf("%w: %s %dx%d in %d planes, lines of %d bytes", videodev.ErrAnswer, videodev.Letters(l.Pixels), l.Width, l.Height,
				len(l.Planes), p.stride)
		}
		t.need[p.plane] = max(t.need[p.plane], p.from+p.stride*(p.tall-1)+p.wide)
		t.direct = t.direct && p.stride == p.pitch && t.offsetIn(p) == p.to
		t.inPlace = t.inPlace && len(l.Planes) == 1
	}
	for i, n := range t.need {
		if n > int(l.Planes[i].Size) {
			return nil, fmt.Errorf("%w: plane %d of %s %dx%d has %d bytes, which are fewer than the %d of its lines", videodev.ErrAnswer, i,
				videodev.Letters(l.Pixels), l.Width, l.Height, l.Planes[i].Size, n)
		}
	}
	if len(l.Planes) > 1 { // the device must not write beyond the part of the slot that a plane has
		for i, p := range t.parts[:len(t.parts)-1] {
			t.direct = t.direct && int(l.Planes[p.plane].Size) <= t.parts[i+1].to-p.to
		}
	}
	if !t.direct && t.says == "" {
		t.says = "padding left out"
	}
	return t, nil
}

// leastFile is the least number of bytes of a JPEG file.
const leastFile = 4

// newFileTransfer returns the transfer of buffers with JPEG files.
func newFileTransfer(f pipeline.Format, l videodev.Layout) (*transfer, error) {
	size := int(l.Planes[0].Size)
	if len(l.Planes) > 1 || size < leastFile {
		return nil, fmt.Errorf("%w: %d planes, %d bytes, for JPEG files", videodev.ErrAnswer, len(l.Planes), size)
	}
	f.Stride = max(f.Stride, (size+f.Height-1)/f.Height) // there is room for the largest file
	whole := part{wide: size, tall: 1, stride: size, pitch: size}
	return &transfer{format: f, layout: l, parts: []part{whole}, need: []int{leastFile}, direct: true, inPlace: true}, f.Validate()
}

// offsetIn returns the offset of a part in a slot into which the device writes.
func (t *transfer) offsetIn(p part) int {
	if len(t.layout.Planes) > 1 {
		return p.to // each plane has an address of its own
	}
	return p.from
}

// partsOf returns the parts of a frame. Chroma has the lines that V4L2 defines for the format: as long as those of luma
// in NV12, half as long in YU12, and those of a plane of its own in the formats with several planes.
func partsOf(f pipeline.Format, c v4l2Code, l videodev.Layout, line, stride int) []part {
	luma := part{wide: line, tall: f.Height, stride: stride, pitch: f.Stride}
	half, at, from := f.Height/2, f.Stride*f.Height, stride*f.Height
	chroma := func(i int) (plane, stride int) {
		if c.planes == 0 || i >= len(l.Planes) {
			return 0, 0
		}
		return i, int(l.Planes[i].Stride)
	}
	switch f.Pixel {
	case pipeline.NV12:
		p := part{from: from, to: at, wide: line, tall: half, stride: stride, pitch: f.Stride}
		if plane, own := chroma(1); c.planes > 0 {
			p.plane, p.from, p.stride = max(plane, 1), 0, own
		}
		return []part{luma, p}
	case pipeline.I420:
		list := []part{luma}
		for i := range 2 {
			p := part{from: from + i*(stride/2)*half, to: at + i*(f.Stride/2)*half, wide: line / 2, tall: half, stride: stride / 2, pitch: f.Stride / 2}
			if plane, own := chroma(1 + i); c.planes > 0 {
				p.plane, p.from, p.stride = max(plane, 1+i), 0, own
			}
			list = append(list, p)
		}
		return list
	}
	return []part{luma}
}

// size returns the bytes that a slot needs if the device writes into it.
func (t *transfer) size() int {
	if len(t.layout.Planes) > 1 {
		last := t.parts[len(t.parts)-1]
		return max(t.format.Size(), last.to+int(t.layout.Planes[last.plane].Size))
	}
	return max(t.format.Size(), int(t.layout.Planes[0].Size))
}

// copy makes a frame in dst from the planes of a buffer, which may be dst itself if t.inPlace.
func (t *transfer) copy(dst []byte, planes [][]byte) {
	for _, p := range t.parts {
		src, to := planes[p.plane][p.from:], dst[p.to:]
		if t.change == nil && p.stride == p.pitch {
			copy(to[:p.pitch*(p.tall-1)+p.wide], src)
			continue
		}
		for y := range p.tall {
			line := src[y*p.stride:][:p.wide]
			if t.change != nil {
				t.change(to[y*p.pitch:][:p.pitch], line)
			} else {
				copy(to[y*p.pitch:][:p.wide], line)
			}
		}
	}
}

// colorOf returns the colorimetry of pictures as V4L2 tells it, with its defaults (V4L2_MAP_YCBCR_ENC_DEFAULT and
// V4L2_MAP_QUANTIZATION_DEFAULT of videodev2.h). If the pipeline has no such colours, doubt names those that are used
// instead.
func colorOf(f pipeline.Format, l videodev.Layout) (color pipeline.Colorimetry, doubt string) {
	if _, raw := f.Pixel.Samples(); raw {
		return f.Color, ""
	}
	if f.Pixel == pipeline.RGB24 {
		if l.Quantization == videodev.LimitedRange {
			doubt = "R'G'B' of limited range is taken as that of full range"
		}
		return f.Color, doubt
	}
	matrix := l.Matrix
	if matrix == 0 {
		matrix = map[uint32]uint32{
			videodev.ColorsREC709: videodev.MatrixOf709, videodev.ColorsDCIP3: videodev.MatrixOf709, videodev.ColorsBT2020: videodev.MatrixOf2020,
			videodev.ColorsSMPTE240M: videodev.MatrixOf240M,
		}[l.Colors]
	}
	of709, full := true, l.Quantization == videodev.FullRange || l.Quantization == 0 && l.Colors == videodev.ColorsJPEG
	switch matrix {
	case videodev.MatrixOf709:
	case videodev.MatrixXV709: // those of xvYCC are of limited range, whatever is told, with colours beyond it
		full = false
	case videodev.MatrixXV601:
		of709, full = false, false
	case videodev.MatrixOf2020:
		doubt = "BT.2020 is taken as BT.709"
	case videodev.MatrixOf2020Constant:
		doubt = "BT.2020 with constant luminance is taken as BT.709"
	case videodev.MatrixOf240M:
		doubt = "SMPTE 240M is taken as BT.709"
	default:
		of709 = false
	}
	switch {
	case of709 && full:
		return pipeline.BT709Full, doubt
	case of709:
		return pipeline.BT709Limited, doubt
	case full:
		return pipeline.BT601Full, doubt
	}
	return pipeline.BT601Limited, doubt
}

// swapBytes exchanges the bytes of each pair: YUYV becomes UYVY. dst may be src.
func swapBytes(dst, src []byte) {
	dst = dst[:len(src)]
	for len(src) >= 16 && len(dst) >= 16 {
		v, w := binary.LittleEndian.Uint64(src), binary.LittleEndian.Uint64(src[8:])
		binary.LittleEndian.PutUint64(dst, v<<8&0xff00ff00ff00ff00|v>>8&0x00ff00ff00ff00ff)
		binary.LittleEndian.PutUint64(dst[8:], w<<8&0xff00ff00ff00ff00|w>>8&0x00ff00ff00ff00ff)
		dst, src = dst[16:], src[16:]
	}
	for i := 0; i+1 < len(src); i += 2 {
		dst[i], dst[i+1] = src[i+1], src[i]
	}
}

// shiftDown returns a function that shifts 16-bit samples down and clears what is above their significant bits. dst may
// be src.
func shiftDown(shift, bits int) func(dst, src []byte) {
	mask := uint64(1)<<bits - 1
	mask |= mask << 16
	mask |= mask << 32
	return func(dst, src []byte) { shiftSamples(dst, src, uint(shift), mask) }
}

// shiftSamples shifts 16-bit samples down by less than 16 bits. mask has the bits that remain of four of them.
func shiftSamples(dst, src []byte, by uint, mask uint64) {
	dst = dst[:len(src)]
	for len(src) >= 16 && len(dst) >= 16 {
		v, w := binary.LittleEndian.Uint64(src), binary.LittleEndian.Uint64(src[8:])
		binary.LittleEndian.PutUint64(dst, v>>(by&15)&mask)
		binary.LittleEndian.PutUint64(dst[8:], w>>(by&15)&mask)
		dst, src = dst[16:], src[16:]
	}
	for i := 0; i+1 < len(src); i += 2 {
		binary.LittleEndian.PutUint16(dst[i:], binary.LittleEndian.Uint16(src[i:])>>(by&15)&uint16(mask))
	}
}

// packed14 returns the bytes of a line of RAW14: four samples in seven bytes.
func packed14(width int) int { return (width + 3) / 4 * 7 }

// unpack14 unpacks RAW14 as V4L2 has it (V4L2_PIX_FMT_SRGGB14P): the upper 8 bits of four samples, then their lower 6
// bits, those of the first sample lowest.
func unpack14(dst, src []byte) {
	for i := 0; i+7 <= len(src) && len(dst) >= 2; i += 7 {
		low := uint32(src[i+4]) | uint32(src[i+5])<<8 | uint32(src[i+6])<<16
		for k := 0; k < 4 && len(dst) >= 2; k++ {
			binary.LittleEndian.PutUint16(dst, uint16(src[i+k])<<6|uint16(low>>(6*k)&0x3f))
			dst = dst[2:]
		}
	}
}
