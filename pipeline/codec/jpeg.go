// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"errors"
	"fmt"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
)

// ErrNoAddress is a frame that the GPU cannot see.
var ErrNoAddress = errors.New("the frame has no device address")

// A GPUJPEG makes JPEG files of frames where they are, with nvJPEG.
type GPUJPEG struct{ *cudahost.JPEGEncoder }

// Encode appends a complete file with the picture of f, which is I420, to dst. It does not write beyond dst's capacity.
func (e *GPUJPEG) Encode(dst []byte, f *pipeline.Frame) ([]byte, error) {
	w, h, stride := f.Format.Width, f.Format.Height, f.Format.Stride
	if f.Device == 0 {
		return dst, fmt.Errorf("frame %d: %w", f.Sequence, ErrNoAddress)
	}
	luma := uintptr(stride * h)
	return e.JPEGEncoder.Encode(dst, cudahost.Picture420{
		Planes:  [3]uintptr{f.Device, f.Device + luma, f.Device + luma + luma/4},
		Strides: [3]int{stride, stride / 2, stride / 2}, Width: w, Height: h,
	})
}
