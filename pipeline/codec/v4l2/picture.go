// SPDX-License-Identifier: Apache-2.0

package v4l2

import (
	"fmt"

	"github.com/tegracast/tegracast/pipeline"

	"github.com/tegracast/tegracast/pipeline/videodev"
)

// fill copies an I420 picture into the planes of a buffer.
func (q *queue) fill(planes [][]byte, f *pipeline.Frame) error {
	w, h, stride := f.Format.Width, f.Format.Height, f.Format.Stride
	luma, chroma := f.Bytes, f.Bytes[stride*h:]
	u, v := chroma[:stride/2*(h/2)], chroma[stride/2*(h/2):]
	wide, lines := int(q.planes[0].Stride), q.height
	joined := q.pixels == videodev.Code("NV12") || q.pixels == videodev.Code("NM12")
	y, c := planes[0], []byte(nil)
	narrow := wide / 2
	switch {
	case len(planes) > 1: // each plane in separate memory
		c, narrow = planes[1], int(q.planes[1].Stride)
	default:
		c = y[min(wide*lines, len(y)):]
		if joined {
			narrow = wide
		}
	}
	second := c
	if !joined {
		if second = nil; len(planes) > 2 {
			second = planes[2]
		} else if n := narrow * (lines / 2); n <= len(c) {
			second = c[n:]
		}
	}
	least := w / 2 // bytes of a chroma line
	if joined {
		least = w
	}
	if len(planes) > 2 && int(q.planes[2].Stride) != narrow {
		return fmt.Errorf("planes of chroma have lines of %d and %d bytes", narrow, q.planes[2].Stride)
	}
	if wide < w || narrow < least || len(y) < wide*h || len(c) < narrow*(h/2) || len(second) < narrow*(h/2) {
		return fmt.Errorf("planes of %d and %d bytes, %d a line, do not take %dx%d", len(y), len(c), wide, w, h)
	}
	rows(y, wide, luma, stride, w, h)
	if joined {
		for row := range h / 2 {
			to := c[row*narrow:][:w]
			for i := range w / 2 {
				to[2*i], to[2*i+1] = u[row*stride/2+i], v[row*stride/2+i]
			}
		}
		return nil
	}
	rows(c, narrow, u, stride/2, w/2, h/2)
	rows(second, narrow, v, stride/2, w/2, h/2)
	return nil
}

// rows copies h lines of w bytes.
func rows(to []byte, wide int, from []byte, stride, w, h int) {
	for row := range h {
		copy(to[row*wide:][:w], from[row*stride:])
	}
}
