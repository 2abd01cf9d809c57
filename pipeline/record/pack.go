// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record/cuda"
)

// openPacker opens the GPU packer, if frames are to be packed and are in CUDA memory, and a compiler is available.
func (s *Sink) openPacker() error {
	gpu, is := s.config.Memory.(*cudahost.CUDA)
	if s.words == nil || !is {
		return nil
	}
	samples, _ := s.words.Pixel.Samples()
	p, err := cuda.NewPacker(gpu, samples, s.config.Kernels)
	if errors.Is(err, cudahost.ErrNoCUDA) {
		s.log.Warn("the recording is packed on the CPU", "reason", err)
		return nil
	}
	if err != nil {
		return err
	}
	s.packer = p
	s.log.Info("the recording is packed on the GPU", "device", gpu.Device.String())
	return nil
}

// pack sets j.pixels to the frame's pixels, packed if the recording is packed. It returns an error that wraps
// pipeline.ErrDepth if packing would lose bits, or an error of CUDA.
func (j *job) pack(s *Sink, f *pipeline.Frame) error {
	if s.words == nil {
		j.pixels = f.Bytes[:s.format.Size()]
		return nil
	}
	var err error
	if j.device != nil {
		err = s.packer.Pack(j.device, f)
	} else {
		samples, _ := s.format.Pixel.Samples()
		err = samples.Pack(j.packed, f.Bytes[:s.words.Size()])
	}
	if errors.Is(err, pipeline.ErrDepth) {
		return fmt.Errorf("frame %d cannot be packed: %w: record without pack", f.Sequence, err)
	}
	j.pixels = j.packed
	return err
}
