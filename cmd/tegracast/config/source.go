// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"slices"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/pipeline"
)

// defaultRate is the rate of a source whose section gives none.
var defaultRate = pipeline.Rate{Num: 30, Den: 1}

// streamed sets the fields of s that depend on whether the stream is bare. If it is not, streamed refuses frames whose
// size is not a multiple of fpga.FrameAlign, because the trailer begins a DMA descriptor.
func (s *Source) streamed(at yamlfile.Section, bare bool) error {
	if s.Bare = bare; bare {
		s.NoExposure = "is a bare stream"
		return nil
	} else if n := s.Format.Size(); n%fpga.FrameAlign != 0 {
		return at.Key("width").Errorf("a frame has %d bytes: must be a multiple of %d, as each DMA descriptor is (PG195)", n, fpga.FrameAlign)
	}
	s.cpuReads = "the CPU reads every frame to check the FPGA's CRC: leave write_combined out, or write stream: bare, which has none"
	return nil
}

// bareStream is the value of the key stream for a stream without camera block and trailers.
const bareStream = "bare"

// Sensor describes the layout of a sensor's samples in memory.
type Sensor struct {
	Mosaic string `yaml:"mosaic,omitempty" jsonschema:"enum=rggb,enum=grbg,enum=gbrg,enum=bggr,enum=mono" jsonschema_description:"Colours of the first two samples of the first two lines (default rggb)."`
	Bits   int    `yaml:"bits,omitempty" jsonschema:"minimum=8,maximum=16,multipleOf=2" jsonschema_description:"Bits of a sample (default 10). Samples of more than 8 bits lie in words of 16 bits."`
	Packed bool   `yaml:"packed,omitempty" jsonschema_description:"The samples are RAW10 or RAW12, packed as MIPI CSI-2 packs them. Only for files and v4l2."`
}

// Pixel returns the format of the samples, or false if there is none. A nil Sensor means RGGB with 10 bits.
func (s *Sensor) Pixel() (pipeline.PixelFormat, bool) {
	if s == nil {
		s = &Sensor{}
	}
	mosaic := max(0, slices.Index([]string{"rggb", "grbg", "gbrg", "bggr", "mono"}, s.Mosaic))
	return pipeline.Samples{Mosaic: pipeline.Mosaic(mosaic), Bits: cmp.Or(s.Bits, 10), Packed: s.Packed}.Format()
}

// format returns the format of frames with such samples.
func (s *Sensor) format(width, height int, rate pipeline.Rate) pipeline.Format {
	pixel, _ := s.Pixel()
	f, _ := pipeline.NewFormat(pixel, width, height, rate)
	return f
}

// check refuses layouts that do not exist, and packed samples unless packed is true.
func (s *Sensor) check(at yamlfile.Section, packed bool) error {
	if s == nil {
		return nil
	}
	if s.Packed && !packed {
		return at.Key("packed").Errorf("an FPGA sends samples in bytes or 16-bit words: leave packed out")
	}
	if _, ok := s.Pixel(); !ok && s.Packed {
		return at.Key("bits").Errorf("%d: packed samples have 10 or 12 bits", s.Bits)
	} else if !ok {
		return at.Key("bits").Errorf("%d: must be 8, 10, 12, 14 or 16", s.Bits)
	}
	return nil
}
