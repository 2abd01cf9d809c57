// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"errors"
	"fmt"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
)

// ErrNoAddress means that the GPU cannot access a frame.
var ErrNoAddress = errors.New("the frame has no device address")

// A GPUJPEG encodes frames as JPEG files with nvJPEG, which reads the frames in place.
type GPUJPEG struct{ *cudahost.NVJPEG }

// Encode appends a complete JPEG file of f, which must be I420, to dst. It never writes beyond dst's capacity.
func (e *GPUJPEG) Encode(dst []byte, f *pipeline.Frame) ([]byte, error) {
	w, h, stride := f.Format.Width, f.Format.Height, f.Format.Stride
	if f.Device == 0 {
		return dst, fmt.Errorf("frame %d: %w", f.Sequence, ErrNoAddress)
	}
	luma := uintptr(stride * h)
	return e.NVJPEG.Encode(dst, cudahost.Picture420{
		Planes:  [3]uintptr{f.Device, f.Device + luma, f.Device + luma + luma/4},
		Strides: [3]int{stride, stride / 2, stride / 2}, Width: w, Height: h,
	})
}
