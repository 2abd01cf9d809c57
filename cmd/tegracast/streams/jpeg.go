// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"errors"
	"log/slog"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline/codec"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// NewJPEG opens the fastest available encoder: the GPU's if frame memory is CUDA's and nvJPEG is installed, else
// libjpeg-turbo, else image/jpeg.
func NewJPEG(memory cudahost.Allocator, quality int, log *slog.Logger) (rtp.JPEGEncoder, error) {
	if gpu, ok := memory.(*cudahost.CUDA); ok {
		encoder, err := gpu.Device.NewNVJPEG(quality)
		if err == nil {
			log.Info("JPEG is encoded on the GPU")
			return &codec.GPUJPEG{NVJPEG: encoder}, nil
		}
		if !errors.Is(err, cudahost.ErrNoCUDA) {
			return nil, err
		}
		log.Warn("JPEG is encoded on the CPU", "reason", err)
	}
	turbo, err := codec.NewTurboJPEG(quality)
	if err == nil {
		return turbo, nil
	}
	if !errors.Is(err, codec.ErrNoTurboJPEG) {
		return nil, err
	}
	log.Info("JPEG is encoded by a slow encoder", "reason", err)
	return rtp.NewJPEGEncoder(quality), nil
}
