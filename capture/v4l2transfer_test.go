// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/videodev"
)

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
