package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// check fills in the defaults and refuses what cannot be, before anything is opened. Kinds, limits and missing keys were
// checked before.
func (d *document) check() error {
	if d.Memory == "" {
		d.Memory = "auto"
	}
	if err := d.checkWeb(); err != nil {
		return err
	}
	names := map[string]string{}
	for i := range d.Sources {
		path := fmt.Sprintf("$.sources[%d]", i)
		if err := d.claim(names, path, d.Sources[i].Name); err != nil {
			return err
		}
		if err := d.checkSource(path, &d.Sources[i]); err != nil {
			return err
		}
	}
	if err := d.checkCameras(); err != nil {
		return err
	}
	for i := range d.ISP {
		path := fmt.Sprintf("$.isp[%d]", i)
		if err := d.claim(names, path, d.ISP[i].Name); err != nil {
			return err
		}
		if err := d.checkISP(path, &d.ISP[i]); err != nil {
			return err
		}
	}
	if err := d.checkKernels(names); err != nil {
		return err
	}
	taken := map[string]string{}
	for i := range d.Outputs {
		path := fmt.Sprintf("$.outputs[%d]", i)
		if err := d.claim(names, path, d.Outputs[i].Name); err != nil {
			return err
		}
		if err := d.checkOutput(path, &d.Outputs[i], taken); err != nil {
			return err
		}
	}
	if err := d.checkGPIO(); err != nil {
		return err
	}
	if err := d.checkWriteCombined(); err != nil {
		return err
	}
	return d.checkSlots()
}

// nameRule keeps names fit for files: an output's SDP is NAME.sdp.
var nameRule = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// claim notes the name of a part, which no other may have.
func (d *document) claim(names map[string]string, path, name string) error {
	if !nameRule.MatchString(name) {
		return d.errorAt(path+".name", "%q: must be 1 to 64 of the letters A to Z and a to z, digits, _ and -", name)
	}
	if first, taken := names[name]; taken {
		return d.errorAt(path+".name", "%q is the name of %s already", name, first[2:])
	}
	names[name] = path
	return nil
}

func (d *document) checkSource(path string, s *SourceConfig) error {
	if s.Slots == 0 {
		s.Slots = 8
	}
	var err error
	switch {
	case !one(s.FPGA != nil, s.Model != nil, s.File != nil):
		return d.errorAt(path, "give exactly one of fpga, model and file")
	case s.FPGA != nil:
		path += ".fpga"
		err = d.checkCamera(path, s.FPGA)
	case s.Model != nil:
		path += ".model"
		err = d.checkModel(path, s.Model)
	default:
		path += ".file"
		err = d.checkFile(path, s.File)
	}
	if err != nil {
		return err
	}
	if f, known := s.format(); known {
		if err := f.Validate(); err != nil {
			return d.errorAt(path+".width", "%s", plain(err, pipeline.ErrFormat))
		}
	}
	return nil
}

// one says whether exactly one is given.
func one(given ...bool) bool {
	n := 0
	for _, is := range given {
		if is {
			n++
		}
	}
	return n == 1
}

// checkSensor checks how a sensor's samples lie in memory.
func (d *document) checkSensor(path string, s *SensorConfig, packed bool) error {
	if s == nil {
		return nil
	}
	if s.Packed && !packed {
		return d.errorAt(path+".sensor.packed", "an FPGA sends samples in bytes or 16-bit words: leave packed out")
	}
	if _, ok := s.pixel(); !ok && s.Packed {
		return d.errorAt(path+".sensor.bits", "%d: packed samples have 10 or 12 bits", s.Bits)
	} else if !ok {
		return d.errorAt(path+".sensor.bits", "%d: must be 8, 10, 12, 14 or 16", s.Bits)
	}
	return nil
}

func (d *document) checkCamera(path string, c *CameraConfig) error {
	if c.Rate.V.Num == 0 {
		c.Rate.V = pipeline.Rate{Num: 30, Den: 1}
	}
	switch {
	case !filepath.IsAbs(c.Device):
		return d.errorAt(path+".device", "%q: name a device file such as %s", c.Device, defaultBoard)
	case c.Exposure.V < 0 || c.Exposure.V > c.Rate.V.Period():
		return d.errorAt(path+".exposure", "%v: must be from 0 to the frame period, %v", c.Exposure.V, c.Rate.V.Period())
	}
	if err := d.checkStream(path, c); err != nil {
		return err
	}
	return d.checkSensor(path, c.Sensor, false)
}

// checkStream refuses what only one kind of stream has.
func (d *document) checkStream(path string, c *CameraConfig) error {
	if c.Stream != bareStream {
		if c.Channel != 0 {
			return d.errorAt(path+".channel", "a camera says itself which channel it feeds: leave channel out, or write stream: bare")
		}
		return nil
	}
	for key, given := range map[string]bool{"camera": c.Camera != 0, "exposure": c.Exposure.V != 0, "gain": c.Gain != 0, "triggered": c.Triggered} {
		if given {
			return d.errorAt(path+"."+key, "a bare stream has no camera block that would be told: leave %s out", key)
		}
	}
	return nil
}

// checkCameras refuses two sources of one camera, and a card that some sources poll and others do not.
func (d *document) checkCameras() error {
	type camera struct{ device, what string }
	first := map[camera]string{}
	cards := map[string]*SourceConfig{}
	for i := range d.Sources {
		s := &d.Sources[i]
		if s.FPGA == nil {
			continue
		}
		if other := cards[s.card()]; other != nil && other.FPGA.Poll != s.FPGA.Poll {
			return d.errorAt(fmt.Sprintf("$.sources[%d].fpga.poll", i), "%t, and source %q of the same device has %t: the device is polled for all of them or for none",
				s.FPGA.Poll, other.Name, other.FPGA.Poll)
		}
		cards[s.card()] = s
		c := camera{filepath.Clean(s.FPGA.Device), fmt.Sprintf("camera %d", s.FPGA.Camera)}
		if s.bare() {
			c.what = fmt.Sprintf("channel %d", s.FPGA.Channel)
		}
		if other, taken := first[c]; taken {
			return d.errorAt(fmt.Sprintf("$.sources[%d].fpga", i), "%s of %s is source %q already: let its outputs name that one", c.what, c.device, other)
		}
		first[c] = s.Name
	}
	return nil
}

func (d *document) checkFile(path string, f *FileConfig) error {
	switch {
	case f.Path == "":
		return d.errorAt(path+".path", "name the file")
	case f.describesItself() && (f.Width != 0 || f.Height != 0):
		return d.errorAt(path, "a .y4m file has its width and height in itself: leave them out")
	case f.describesItself() && f.Sensor != nil:
		return d.errorAt(path+".sensor", "a .y4m file holds pictures, no samples of a sensor: leave it out")
	case !f.describesItself() && (f.Width == 0 || f.Height == 0):
		return d.errorAt(path, "a headerless file needs its width and height")
	}
	return d.checkSensor(path, f.Sensor, true)
}

func (d *document) checkModel(path string, m *ModelConfig) error {
	if m.Replay == "" && m.Width == 0 && m.Height == 0 {
		m.Width, m.Height = model.TestChartWidth, model.TestChartHeight
	}
	if m.Rate.V.Num == 0 {
		m.Rate.V = pipeline.Rate{Num: 30, Den: 1}
	}
	if m.Shift == nil {
		m.Shift = new(2)
	}
	if err := d.checkSensor(path, m.Sensor, false); err != nil {
		return err
	}
	pixel, _ := m.Sensor.pixel()
	switch size := pixel.LineBytes(m.Width) * m.Height; {
	case m.Width == 0 || m.Height == 0:
		return d.errorAt(path, "give both width and height")
	case size%model.BeatBytes != 0:
		return d.errorAt(path+".width", "a frame of %dx%d has %d bytes, no multiple of the FPGA's %d", m.Width, m.Height, size, model.BeatBytes)
	case m.Replay == "" && pixel != pipeline.RGGB10:
		return d.errorAt(path+".sensor", "the test chart is RGGB of 10 bits: leave it out, or name a file to replay")
	case m.Replay == "" && (m.Width > model.TestChartWidth || m.Height > model.TestChartHeight):
		return d.errorAt(path+".width", "the test chart has %dx%d pixels, %dx%d are wanted: name a file to replay",
			model.TestChartWidth, model.TestChartHeight, m.Width, m.Height)
	case *m.Shift%2 != 0:
		return d.errorAt(path+".shift", "%d: must be even, so that the Bayer order stays", *m.Shift)
	case m.Stream == bareStream && m.Exposure.V != 0:
		return d.errorAt(path+".exposure", "a bare stream has no camera block that would be told: leave exposure out")
	case m.Exposure.V < 0 || m.Exposure.V > m.Rate.V.Period():
		return d.errorAt(path+".exposure", "%v: must be from 0 to the frame period, %v", m.Exposure.V, m.Rate.V.Period())
	}
	for _, id := range slices.Sorted(maps.Keys(m.Faults)) {
		if _, _, err := model.ParseFault(fmt.Sprintf("%s:%g", id, m.Faults[id])); err != nil {
			return d.errorAt(path+".faults."+id, "%s", plain(err, model.ErrFault))
		}
	}
	return d.checkTiming(path, m)
}

// checkTiming asks a sensor of the least size whether it can keep the rate.
func (d *document) checkTiming(path string, m *ModelConfig) error {
	_, err := model.NewSensor(model.SensorConfig{
		Width: model.StampSamples, Height: 1, Format: fpga.FourCC(pipeline.RGGB10),
		Frames: [][]byte{make([]byte, 2*model.StampSamples)}, Period: m.Rate.V.Period(), Exposure: m.Exposure.V,
	})
	if err != nil {
		_, why, _ := strings.Cut(err.Error(), ": ")
		return d.errorAt(path+".rate", "%s: the sensor cannot: %s", m.Rate.V, why)
	}
	return nil
}

// plain is an error's text without the name of its kind in front, which the place in the file says already.
func plain(err, kind error) string { return strings.TrimPrefix(err.Error(), kind.Error()+": ") }

func (r *RTPConfig) config(name string) send.Config {
	return send.Config{
		Stream: rtp.Stream{
			Payload: r.Payload.V, MTU: r.MTU, Clock: r.Clock, CaptureTime: r.CaptureTime, Checksum: r.Checksum, Quality: r.Quality,
			Name: "tegracast " + name,
		},
		Destinations: r.Destinations, Interface: r.Interface, TTL: r.TTL, DSCP: r.DSCP, Pacing: r.Pacing.V,
	}
}
