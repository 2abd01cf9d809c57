// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"

	"github.com/tegracast/tegracast/pipeline"
)

// Needs implements pipeline.Stage. From another stage the kernel needs complete frames of the configured pixels. A
// kernel that makes pictures needs frames that the CPU can read, because the CPU copies them while the kernel is
// skipped.
func (s *Stage) Needs(in pipeline.Format) (pipeline.StageNeeds, error) {
	from, err := s.config.Input(in)
	return pipeline.StageNeeds{From: from, Holds: Holds, OnDevice: s.config.Results}, err
}

// Input returns the format of the frames that the kernel reads if the source delivers frames of format in.
func (c *Config) Input(in pipeline.Format) (pipeline.Format, error) { return in.As(c.Pixels, c.Turned) }

// accepts returns an error unless the kernel can read in and make want from it.
func (c *Config) accepts(in pipeline.Format, want []pipeline.Format) error {
	if in.PacketPitch > 0 {
		return fmt.Errorf("%w: %s has gaps for packets' headers", ErrFormat, in)
	}
	if _, ok := pixelNumber(in.Pixel); !ok {
		return fmt.Errorf("%w: input %s", ErrFormat, in)
	}
	for _, w := range want {
		switch {
		case c.Results && (w.Pixel != pipeline.Grey || w.PacketPitch > 0):
			return fmt.Errorf("%w: it outputs results, not pictures: %s is wanted", ErrFormat, w)
		case !c.Results && w != in:
			return fmt.Errorf("%w: it makes %s out of the same: %s is wanted", ErrFormat, in, w)
		}
	}
	return nil
}

// pixelNumber returns the number of the format in prelude.cuh, or false if it has none.
func pixelNumber(p pipeline.PixelFormat) (int32, bool) {
	for i, q := range []pipeline.PixelFormat{pipeline.UYVY, pipeline.UYVP, pipeline.RGB24, pipeline.Grey, pipeline.I420, pipeline.NV12} {
		if p == q {
			return int32(i), true
		}
	}
	_, ok := p.Samples()
	return 6, ok
}
