package main

import (
	"fmt"

	"tegracast/fpga/model"
	"tegracast/pipeline"
	"tegracast/pipeline/isp"
	"tegracast/pipeline/rtp"
)

// check fills in the defaults and refuses what cannot be, before anything is opened.
func (d *document) check() error {
	if d.Memory == "" {
		d.Memory = "auto"
	}
	if d.Memory != "auto" && d.Memory != "cuda" && d.Memory != "host" {
		return d.errorAt("$.memory", "%q: use auto, cuda or host", d.Memory)
	}
	names := map[string]string{}
	claim := func(path, name string) error {
		if name == "" {
			return d.errorAt(path, "give it a name")
		}
		if first, taken := names[name]; taken {
			return d.errorAt(path+".name", "%q is the name of %s already", name, first[2:])
		}
		names[name] = path
		return nil
	}
	if len(d.Sources) == 0 {
		return d.errorAt("$.sources", "there must be at least one")
	}
	for i := range d.Sources {
		path := fmt.Sprintf("$.sources[%d]", i)
		if err := claim(path, d.Sources[i].Name); err != nil {
			return err
		}
		if err := d.checkSource(path, &d.Sources[i]); err != nil {
			return err
		}
	}
	for i := range d.ISP {
		path := fmt.Sprintf("$.isp[%d]", i)
		if err := claim(path, d.ISP[i].Name); err != nil {
			return err
		}
		if err := d.checkISP(path, &d.ISP[i]); err != nil {
			return err
		}
	}
	for i := range d.Outputs {
		path := fmt.Sprintf("$.outputs[%d]", i)
		if err := claim(path, d.Outputs[i].Name); err != nil {
			return err
		}
		if err := d.checkOutput(path, &d.Outputs[i]); err != nil {
			return err
		}
	}
	return nil
}

const (
	minSlots = 3
	maxSlots = 64
)

func (d *document) checkSource(path string, s *SourceConfig) error {
	if s.Slots == 0 {
		s.Slots = 8
	}
	if s.Slots < minSlots || s.Slots > maxSlots {
		return d.errorAt(path+".slots", "%d: must be from %d to %d", s.Slots, minSlots, maxSlots)
	}
	switch {
	case (s.Model == nil) == (s.File == nil):
		return d.errorAt(path, "give exactly one of model and file")
	case s.Model != nil:
		return d.checkModel(path+".model", s.Model)
	case s.File.Path == "":
		return d.errorAt(path+".file.path", "name the file")
	}
	return nil
}

func (d *document) checkModel(path string, m *ModelConfig) error {
	if m.Replay == "" && m.Width == 0 && m.Height == 0 {
		m.Width, m.Height = 1920, 1080
	}
	if m.Rate.V.Num == 0 {
		m.Rate.V = pipeline.Rate{Num: 30, Den: 1}
	}
	if m.Shift == nil {
		m.Shift = new(2)
	}
	if *m.Shift < 0 || *m.Shift%2 != 0 {
		return d.errorAt(path+".shift", "%d: must be even and not negative, so that the Bayer order stays", *m.Shift)
	}
	if _, err := pipeline.NewFormat(pipeline.RGGB10, m.Width, m.Height, m.Rate.V); err != nil {
		return d.errorAt(path+".width", "%v", err)
	}
	for id, rate := range m.Faults {
		if _, _, err := model.ParseFault(fmt.Sprintf("%s:%g", id, rate)); err != nil {
			return d.errorAt(path+".faults."+id, "%v", err)
		}
	}
	if m.Exposure.V < 0 || m.Exposure.V > m.Rate.V.Period() {
		return d.errorAt(path+".exposure", "%v: must be from 0 to the frame period, %v", m.Exposure.V, m.Rate.V.Period())
	}
	return nil
}

func (c *ISPConfig) config() isp.Config {
	w := c.WhiteBalance
	return isp.Config{
		BlackLevel: c.BlackLevel, Gamma: c.Gamma, Workers: c.Workers,
		Gains: isp.Gains{R: w.Red, G: w.Green, B: w.Blue},
	}
}

func (d *document) checkISP(path string, c *ISPConfig) error {
	if c.From == "" {
		c.From = d.Sources[0].Name
	}
	if !d.hasSource(c.From) {
		return d.errorAt(path+".from", "there is no source %q", c.From)
	}
	if err := c.config().Validate(); err != nil {
		return d.errorAt(path, "%v", err)
	}
	return nil
}

func (d *document) hasSource(name string) bool {
	for _, s := range d.Sources {
		if s.Name == name {
			return true
		}
	}
	return false
}

func (d *document) hasISP(name string) bool {
	for _, s := range d.ISP {
		if s.Name == name {
			return true
		}
	}
	return false
}

func (r *RTPConfig) config(name string) rtp.Config {
	return rtp.Config{
		Payload: r.Payload.V, Destinations: r.Destinations, Interface: r.Interface, TTL: r.TTL, DSCP: r.DSCP, MTU: r.MTU,
		Pacing: r.Pacing.V, Checksum: r.Checksum, Quality: r.Quality, Name: "tegracast " + name,
	}
}

func (d *document) checkOutput(path string, o *OutputConfig) error {
	switch {
	case o.From != "" && !d.hasSource(o.From) && !d.hasISP(o.From):
		return d.errorAt(path+".from", "there is no source or isp %q", o.From)
	case o.Scale != "" && o.Scale != "full" && o.Scale != "half":
		return d.errorAt(path+".scale", "%q: use full or half", o.Scale)
	case o.Queue < 0 || o.Queue > 64:
		return d.errorAt(path+".queue", "%d: must be from 1 to 64 frames", o.Queue)
	case o.RTP == nil:
		return d.errorAt(path, "say where the frames go: give it an rtp section")
	case len(o.RTP.Destinations) == 0:
		return d.errorAt(path+".rtp.destinations", "there must be at least one, such as \"127.0.0.1:5004\"")
	}
	if err := o.RTP.config(o.Name).Validate(); err != nil {
		return d.errorAt(path+".rtp", "%v", err)
	}
	return nil
}
