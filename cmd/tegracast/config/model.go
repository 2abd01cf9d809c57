// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/files"
)

// Model is an FPGA camera simulated in software.
type Model struct {
	Stream    string             `yaml:"stream,omitempty" jsonschema:"enum=camera,enum=bare" jsonschema_description:"camera (default), or bare: without camera block and trailers, as a stock design has it."`
	Replay    string             `yaml:"replay,omitempty" jsonschema_description:"Raw file without header, of one frame or more, that the sensor delivers (default: a real test chart at 1920x1080)."`
	Width     int                `yaml:"width,omitempty" jsonschema:"minimum=64,maximum=32768" jsonschema_description:"Width of a frame, in pixels (default 1920)."`
	Height    int                `yaml:"height,omitempty" jsonschema:"minimum=2,maximum=32768" jsonschema_description:"Height of a frame, in lines (default 1080)."`
	Sensor    *Sensor            `yaml:"sensor,omitempty" jsonschema_description:"How the samples of replay lie in the file (default: RGGB of 10 bits)."`
	Rate      Rate               `yaml:"rate,omitempty" jsonschema_description:"Frames a second, such as 30 or 30000/1001 (default 30)."`
	Triggered bool               `yaml:"triggered,omitempty" jsonschema_description:"Take a frame at each trigger of a group instead of rate frames a second. rate then says how often triggers come."`
	Exposure  Duration           `yaml:"exposure,omitempty" jsonschema_description:"Exposure time, such as 8ms. The picture has the brightness of replay at the default: 10ms, or half the frame period if that is less."`
	Readout   *Duration          `yaml:"readout,omitempty" jsonschema_description:"How long the lines of a frame take to leave the sensor, such as 15ms: at most the frame period, which is the default but for a tenth; 0s: all lines leave at once."`
	Shift     *int               `yaml:"shift,omitempty" jsonschema:"minimum=0,multipleOf=2" jsonschema_description:"Even number of pixels by which the picture moves from frame to frame (default 2)."`
	Seed      uint64             `yaml:"seed,omitempty" jsonschema_description:"Seed of the scattered bus addresses and of the faults."`
	Faults    map[string]float64 `yaml:"faults,omitempty" jsonschema_description:"Faults, F1 to F12 (docs/faults.md), each with the share of frames at which it happens."`
}

// ReadoutTime returns the time that the lines of a frame take to leave the sensor.
func (m *Model) ReadoutTime() time.Duration {
	if m.Readout == nil {
		return m.Rate.V.Period() * 9 / 10
	}
	return m.Readout.V
}

// Bare reports whether the model streams without a camera block and trailers.
func (m *Model) Bare() bool { return m.Stream == bareStream }

func (m *Model) resolve(_ *resolver, at yamlfile.Section, s *Source) error {
	if m.Replay == "" && m.Width == 0 && m.Height == 0 {
		m.Width, m.Height = model.TestChartWidth, model.TestChartHeight
	}
	if m.Rate.V.Num == 0 {
		m.Rate.V = defaultRate
	}
	if m.Shift == nil {
		m.Shift = new(2)
	}
	if err := m.Sensor.check(at.Key("sensor"), false); err != nil {
		return err
	}
	if err := m.check(at); err != nil {
		return err
	}
	s.Format, s.FormatKnown = m.Sensor.format(m.Width, m.Height, m.Rate.V), true
	s.Card, s.Triggered = Card{Name: s.Name, Own: true}, m.Triggered
	if m.Replay != "" {
		s.OpenAt, s.file = at.Key("replay").Place(), func() (pipeline.Format, error) { return s.Format, m.checkReplay() }
	}
	return s.streamed(at, m.Bare())
}

func (m *Model) check(at yamlfile.Section) error {
	pixel, _ := m.Sensor.Pixel()
	switch size := m.frameBytes(); {
	case m.Width == 0 || m.Height == 0:
		return at.Errorf("give both width and height")
	case size%model.BeatBytes != 0:
		return at.Key("width").Errorf("a frame of %dx%d has %d bytes: must be a multiple of %d, the width of the FPGA's stream", m.Width, m.Height, size, model.BeatBytes)
	case m.Replay == "" && pixel != pipeline.RGGB10:
		return at.Key("sensor").Errorf("the test chart is RGGB of 10 bits: leave it out, or name a file to replay")
	case m.Replay == "" && (m.Width > model.TestChartWidth || m.Height > model.TestChartHeight):
		return at.Key("width").Errorf("the test chart has %dx%d pixels, %dx%d are wanted: name a file to replay",
			model.TestChartWidth, model.TestChartHeight, m.Width, m.Height)
	case *m.Shift%2 != 0:
		return at.Key("shift").Errorf("%d: must be even, so that the Bayer order stays", *m.Shift)
	case m.Bare() && m.Exposure.V != 0:
		return at.Key("exposure").Errorf("a bare stream has no camera block to set it: leave exposure out")
	case m.Bare() && m.Triggered:
		return at.Key("triggered").Errorf("a bare stream has no camera block to trigger it: leave triggered out")
	case m.Exposure.V < 0 || m.Exposure.V > m.Rate.V.Period():
		return at.Key("exposure").Errorf("%v: must be from 0 to the frame period, %v", m.Exposure.V, m.Rate.V.Period())
	}
	if d := m.ReadoutTime(); d < 0 || d > m.Rate.V.Period() {
		return at.Key("readout").Errorf("%v: must be from 0 to the frame period, %v", d, m.Rate.V.Period())
	}
	for _, id := range slices.Sorted(maps.Keys(m.Faults)) {
		if _, _, err := model.ParseFault(fmt.Sprintf("%s:%g", id, m.Faults[id])); err != nil {
			return at.Key("faults").Key(id).Errorf("%s", plain(err, model.ErrFault))
		}
	}
	return m.checkTiming(at)
}

// checkTiming checks that a sensor of the minimum size can keep the rate.
func (m *Model) checkTiming(at yamlfile.Section) error {
	_, err := model.NewSensor(model.SensorConfig{
		Width: model.StampSamples, Height: 1, Format: fpga.FourCC(pipeline.RGGB10),
		Frames: [][]byte{make([]byte, 2*model.StampSamples)}, Period: m.Rate.V.Period(), Exposure: m.Exposure.V,
	})
	if err != nil {
		_, why, _ := strings.Cut(err.Error(), ": ")
		return at.Key("rate").Errorf("%s: the sensor cannot: %s", m.Rate.V, why)
	}
	return nil
}

// maxReplay is the maximum size in bytes of a file that a model's sensor replays, because it is held in memory.
const maxReplay = 1 << 30

func (m *Model) frameBytes() int {
	pixel, _ := m.Sensor.Pixel()
	return pixel.LineBytes(m.Width) * m.Height
}

// checkReplay checks the size of the file of frames without reading it.
func (m *Model) checkReplay() error {
	f, size, err := files.OpenRegular(m.Replay)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	frame := int64(m.frameBytes())
	switch {
	case size > maxReplay:
		return fmt.Errorf("%s is longer than %d bytes, which the model would hold in memory: replay it by a source with file", m.Replay, maxReplay)
	case size == 0 || size%frame != 0:
		return fmt.Errorf("%s has %d bytes: must be a multiple of %d, the size of a frame of %dx%d: check width and height, and sensor",
			m.Replay, size, frame, m.Width, m.Height)
	}
	return nil
}

// Frames reads the file of frames that the sensor delivers.
func (m *Model) Frames() ([][]byte, error) {
	if err := m.checkReplay(); err != nil {
		return nil, err
	}
	b, err := files.ReadRegular(m.Replay, maxReplay, "held in memory")
	if err != nil {
		return nil, err
	}
	if len(b) == 0 || len(b)%m.frameBytes() != 0 {
		return nil, fmt.Errorf("%s changes while it is read: start again when it is complete", m.Replay)
	}
	return slices.Collect(slices.Chunk(b, m.frameBytes())), nil
}
