// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"strings"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/videodev"
)

// TestV4L2Colours checks what the colours that a driver tells are taken as, and that those that are not exact are doubted.
func TestV4L2Colours(t *testing.T) {
	const (
		full, limited                           = videodev.FullRange, videodev.LimitedRange
		srgb, ntsc, hdtv, jpeg, wide, p3, smpte = 8, 1, videodev.ColorsREC709, videodev.ColorsJPEG, videodev.ColorsBT2020, videodev.ColorsDCIP3, videodev.ColorsSMPTE240M
	)
	for _, c := range []struct {
		colours, matrix, quantization uint32
		want                          pipeline.Colorimetry
		doubt                         string
	}{
		{0, 0, 0, pipeline.BT601Limited, ""},
		{srgb, 0, 0, pipeline.BT601Limited, ""},
		{ntsc, 0, full, pipeline.BT601Full, ""},
		{jpeg, 0, 0, pipeline.BT601Full, ""},
		{jpeg, 0, limited, pipeline.BT601Limited, ""},
		{hdtv, 0, 0, pipeline.BT709Limited, ""},
		{hdtv, 0, full, pipeline.BT709Full, ""},
		{p3, 0, 0, pipeline.BT709Limited, ""},
		{hdtv, videodev.MatrixOf601, 0, pipeline.BT601Limited, ""},
		{srgb, videodev.MatrixOf709, full, pipeline.BT709Full, ""},
		{hdtv, videodev.MatrixXV709, full, pipeline.BT709Limited, ""},
		{hdtv, videodev.MatrixXV601, full, pipeline.BT601Limited, ""},
		{srgb, 5, full, pipeline.BT601Full, ""}, // V4L2_YCBCR_ENC_SYCC
		{wide, 0, 0, pipeline.BT709Limited, "BT.2020 is"},
		{wide, videodev.MatrixOf2020, full, pipeline.BT709Full, "BT.2020 is"},
		{wide, videodev.MatrixOf2020Constant, 0, pipeline.BT709Limited, "constant luminance"},
		{wide, videodev.MatrixOf709, 0, pipeline.BT709Limited, ""},
		{smpte, 0, 0, pipeline.BT709Limited, "SMPTE 240M"},
	} {
		l := videodev.Layout{Colors: c.colours, Matrix: c.matrix, Quantization: c.quantization}
		if got, doubt := colorOf(pipeline.Format{Pixel: pipeline.UYVY}, l); got != c.want || !strings.Contains(doubt, c.doubt) || (doubt == "") != (c.doubt == "") {
			t.Errorf("colorspace %d, matrix %d, quantization %d: %s, %q", c.colours, c.matrix, c.quantization, got, doubt)
		}
	}
	rgb := pipeline.Format{Pixel: pipeline.RGB24, Color: pipeline.BT709Full}
	if got, doubt := colorOf(rgb, videodev.Layout{Quantization: limited}); got != pipeline.BT709Full || doubt == "" {
		t.Errorf("R'G'B' of limited range: %s, %q", got, doubt)
	}
}

// FuzzV4L2Transfer makes frames from buffers of any layout that a device may return: no line lies outside.
func FuzzV4L2Transfer(f *testing.F) {
	f.Add(uint32(videodev.Code("RG10")), uint32(64), uint32(48), uint8(1), uint32(192), uint32(192*48), uint32(0), 6, true)
	f.Add(uint32(videodev.Code("NM12")), uint32(64), uint32(48), uint8(2), uint32(64), uint32(64*48), uint32(64*24), 0, false)
	f.Add(uint32(videodev.Code("YM12")), uint32(64), uint32(48), uint8(3), uint32(64), uint32(64*48), uint32(64*12), 0, true)
	f.Add(uint32(videodev.Code("pREE")), uint32(64), uint32(48), uint8(1), uint32(0), uint32(112*48), uint32(0), 0, false)
	f.Add(uint32(videodev.Code("pREE")), uint32(64), uint32(48), uint8(1), uint32(0), uint32(112*48), uint32(0), 7, false)
	f.Fuzz(func(t *testing.T, pixels, width, height uint32, count uint8, stride, size, second uint32, shift int, tight bool) {
		code, ok := v4l2CodeOf(pixels)
		l := videodev.Layout{Width: width, Height: height, Pixels: pixels}
		for i := range min(count, videodev.MaxPlanes) {
			p := videodev.PlaneFormat{Size: size, Stride: stride}
			if i > 0 {
				p.Size, p.Stride = second, stride/2*2
			}
			l.Planes = append(l.Planes, p)
		}
		if !ok || len(l.Planes) == 0 || max(width, height) > 1<<11 || max(size, second) > 1<<22 || shift < 0 || shift > 8 {
			return
		}
		x, err := newTransfer(code, l, pipeline.Rate{}, shift, tight)
		if err != nil {
			return
		}
		if err := x.format.Validate(); err != nil {
			t.Fatal(err)
		}
		var planes [][]byte
		for _, p := range l.Planes {
			planes = append(planes, make([]byte, p.Size))
		}
		x.copy(make([]byte, x.format.Size()), planes)
		if x.inPlace && len(planes) == 1 {
			slot := make([]byte, x.size())
			x.copy(slot[:x.format.Size()], [][]byte{slot})
		}
		if end := x.parts[len(x.parts)-1]; x.direct && end.to+int(l.Planes[end.plane].Size) > x.size() && len(planes) > 1 {
			t.Errorf("the device would write %d bytes from %d of %d", l.Planes[end.plane].Size, end.to, x.size())
		}
	})
}
