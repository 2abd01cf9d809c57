// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"
	"fmt"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// gpuJPEG encodes frames where they are, with nvJPEG.
type gpuJPEG struct{ *cudahost.JPEGEncoder }

// newJPEG opens the GPU's encoder when frame memory is CUDA's and nvJPEG is there; else it is nil, and the stream has its
// own.
func (a *Appliance) newJPEG(output string, quality int) (*gpuJPEG, error) {
	gpu, ok := a.memory.(*cudahost.CUDA)
	if !ok {
		return nil, nil
	}
	encoder, err := gpu.Device.NewJPEGEncoder(quality)
	if errors.Is(err, cudahost.ErrNoCUDA) {
		a.env.Log.Warn("JPEG is encoded on the CPU", "output", output, "reason", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	a.env.Log.Info("JPEG is encoded on the GPU", "output", output)
	return &gpuJPEG{encoder}, nil
}

// Close frees the encoder. A nil one has nothing to free.
func (e *gpuJPEG) Close() error {
	if e == nil {
		return nil
	}
	return e.JPEGEncoder.Close()
}

// Encode implements rtp.JPEGEncoder.
func (e *gpuJPEG) Encode(dst []byte, f *pipeline.Frame) ([]byte, error) {
	w, h, stride := f.Format.Width, f.Format.Height, f.Format.Stride
	if f.Device == 0 {
		return dst, fmt.Errorf("%w: the frame has no device address", rtp.ErrJPEG)
	}
	luma := uintptr(stride * h)
	return e.JPEGEncoder.Encode(dst, cudahost.Picture420{
		Planes:  [3]uintptr{f.Device, f.Device + luma, f.Device + luma + luma/4},
		Strides: [3]int{stride, stride / 2, stride / 2}, Width: w, Height: h,
	})
}
