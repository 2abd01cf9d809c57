// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline/codec"
)

// newJPEG opens the GPU's encoder when frame memory is CUDA's and nvJPEG is there; else it is nil, and the stream has its
// own.
func (a *Appliance) newJPEG(output string, quality int) (*codec.GPUJPEG, error) {
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
	return &codec.GPUJPEG{JPEGEncoder: encoder}, nil
}
