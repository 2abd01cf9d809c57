// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"errors"
	"io"
	"log/slog"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline/codec"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// A JPEGEncoder is one of those that can be had here.
type JPEGEncoder interface {
	rtp.JPEGEncoder
	io.Closer
}

// goJPEG is image/jpeg.
type goJPEG struct{ rtp.JPEGEncoder }

func (goJPEG) Close() error { return nil }

// NewJPEG opens the fastest encoder that can be had: the GPU's, when frame memory is CUDA's and nvJPEG is there, else libjpeg-turbo, else
// image/jpeg.
func NewJPEG(memory cudahost.Allocator, quality int, log *slog.Logger) (JPEGEncoder, error) {
	if gpu, ok := memory.(*cudahost.CUDA); ok {
		encoder, err := gpu.Device.NewJPEGEncoder(quality)
		if err == nil {
			log.Info("JPEG is encoded on the GPU")
			return &codec.GPUJPEG{JPEGEncoder: encoder}, nil
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
	return goJPEG{rtp.NewJPEGEncoder(quality)}, nil
}
