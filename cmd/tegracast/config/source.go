// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"slices"

	"github.com/tegracast/tegracast/pipeline"
)

// A SourceKind is where frames come from: one of the fields of SourceKinds.
type SourceKind interface {
	// resolve fills in the defaults of the section, refuses what cannot be, and fills in what follows from it for s.
	resolve(r *resolver, at section, s *Source) error
}

// Source is a source of frames.
type Source struct {
	Name          string
	Slots         int // frames of memory
	WriteCombined bool
	Format        pipeline.Format
	FormatKnown   bool // else Format is empty: the file tells when it is opened
	Card          Card
	Bare          bool   // a stream without camera block and trailers
	Triggered     bool   // it exposes when something else triggers it
	NoExposure    string // why nobody knows when its frames are exposed, such as "is a file"; empty: the frames say when
	Kind          SourceKind
	At            Place
	OpenAt        Place // what is wrong when it cannot be opened

	cpuReads string // why its frames cannot be in write-combined memory; empty: they can
	section  *SourceSection
}

// Card is the FPGA that frames come from.
type Card struct {
	Name string // the device file, or the name of the source that has a model to itself; empty: there is none
	Own  bool   // it is opened and closed with the source
	Poll bool   // completions are looked for in memory
}

// Same reports whether the sections of two sources, with the defaults, say the same.
func (s *Source) Same(other *Source) bool { return same(s.section, other.section) }

// defaultRate is that of a source which does not say.
var defaultRate = pipeline.Rate{Num: 30, Den: 1}

func (r *resolver) source(at section, c *SourceSection) (Source, error) {
	c.Slots = cmp.Or(c.Slots, 8)
	s := Source{Name: c.Name, Slots: c.Slots, WriteCombined: c.WriteCombined, At: at.place(), OpenAt: at.place(), section: c}
	var err error
	if s.Kind, at, err = one[SourceKind](at, c.SourceKinds); err != nil {
		return s, err
	}
	if err := s.Kind.resolve(r, at, &s); err != nil {
		return s, err
	}
	if s.FormatKnown {
		if err := s.Format.Validate(); err != nil {
			return s, at.key("width").errorf("%s", plain(err, pipeline.ErrFormat))
		}
	}
	return s, nil
}

// streamed fills in what follows from a stream being bare, or not.
func (s *Source) streamed(bare bool) {
	s.Bare = bare
	if bare {
		s.NoExposure = "is a bare stream"
	} else {
		s.cpuReads = "the CPU reads every frame to check the FPGA's CRC: leave write_combined out, or write stream: bare, which has none"
	}
}

// bareStream is the kind of a stream without camera block and trailers.
const bareStream = "bare"

// Sensor says how a sensor's samples lie in memory.
type Sensor struct {
	Mosaic string `yaml:"mosaic,omitempty" jsonschema:"enum=rggb,enum=grbg,enum=gbrg,enum=bggr,enum=mono" jsonschema_description:"Colours of the first two samples of the first two lines (default rggb)."`
	Bits   int    `yaml:"bits,omitempty" jsonschema:"minimum=8,maximum=16,multipleOf=2" jsonschema_description:"Bits of a sample (default 10). Samples of more than 8 bits lie in words of 16 bits."`
	Packed bool   `yaml:"packed,omitempty" jsonschema_description:"The samples are RAW10 or RAW12, packed as MIPI CSI-2 packs them. Only for files."`
}

// Pixel is the format of the samples; false when there is none. Without a section it is RGGB of 10 bits.
func (s *Sensor) Pixel() (pipeline.PixelFormat, bool) {
	if s == nil {
		s = &Sensor{}
	}
	mosaic := max(0, slices.Index([]string{"rggb", "grbg", "gbrg", "bggr", "mono"}, s.Mosaic))
	return pipeline.Samples{Mosaic: pipeline.Mosaic(mosaic), Bits: cmp.Or(s.Bits, 10), Packed: s.Packed}.Format()
}

// format is that of frames of such samples.
func (s *Sensor) format(width, height int, rate pipeline.Rate) pipeline.Format {
	pixel, _ := s.Pixel()
	f, _ := pipeline.NewFormat(pixel, width, height, rate)
	return f
}

// check checks how a sensor's samples lie in memory.
func (s *Sensor) check(at section, packed bool) error {
	if s == nil {
		return nil
	}
	if s.Packed && !packed {
		return at.key("packed").errorf("an FPGA sends samples in bytes or 16-bit words: leave packed out")
	}
	if _, ok := s.Pixel(); !ok && s.Packed {
		return at.key("bits").errorf("%d: packed samples have 10 or 12 bits", s.Bits)
	} else if !ok {
		return at.key("bits").errorf("%d: must be 8, 10, 12, 14 or 16", s.Bits)
	}
	return nil
}
