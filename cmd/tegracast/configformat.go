package main

import (
	"cmp"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/kernel"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

func (d *document) source(name string) *SourceConfig {
	for i := range d.Sources {
		if d.Sources[i].Name == name {
			return &d.Sources[i]
		}
	}
	return nil
}

func (d *document) isp(name string) *ISPConfig {
	for i := range d.ISP {
		if d.ISP[i].Name == name {
			return &d.ISP[i]
		}
	}
	return nil
}

// describesItself says whether the file has a header; else it is headerless Bayer frames.
func (f *FileConfig) describesItself() bool { return strings.EqualFold(filepath.Ext(f.Path), ".y4m") }

// pixel is the format of the sensor's samples; false when there is none. Without a word it is RGGB of 10 bits.
func (s *SensorConfig) pixel() (pipeline.PixelFormat, bool) {
	if s == nil {
		s = &SensorConfig{}
	}
	mosaic := max(0, slices.Index([]string{"rggb", "grbg", "gbrg", "bggr", "mono"}, s.Mosaic))
	return pipeline.Samples{Mosaic: pipeline.Mosaic(mosaic), Bits: cmp.Or(s.Bits, 10), Packed: s.Packed}.Format()
}

// format is that of frames of such samples.
func (s *SensorConfig) format(width, height int, rate pipeline.Rate) pipeline.Format {
	pixel, _ := s.pixel()
	f, _ := pipeline.NewFormat(pixel, width, height, rate)
	return f
}

// format is what the source delivers. It is not known before a file that describes itself is opened.
func (s *SourceConfig) format() (f pipeline.Format, known bool) {
	switch {
	case s.FPGA != nil:
		f = s.FPGA.Sensor.format(s.FPGA.Width, s.FPGA.Height, s.FPGA.Rate.V)
	case s.Model != nil:
		f = s.Model.Sensor.format(s.Model.Width, s.Model.Height, s.Model.Rate.V)
	case s.File.describesItself():
		return f, false
	default:
		rate := s.File.Rate.V
		if rate.Num == 0 {
			rate = pipeline.Rate{Num: 30, Den: 1}
		}
		f = s.File.Sensor.format(s.File.Width, s.File.Height, rate)
	}
	return f, true
}

// pixels is what an output wants of its isp.
func (c *OutputConfig) pixels() pipeline.PixelFormat {
	switch {
	case c.RTP != nil && c.RTP.Payload.V == rtp.JPEG:
		return pipeline.I420
	case c.RTP != nil && c.RTP.Pixels == "uyvp":
		return pipeline.UYVP
	case c.RTP != nil && c.RTP.Pixels == "rgb24":
		return pipeline.RGB24
	}
	return pipeline.UYVY
}

// packetReady says whether the isp can lay an output's pictures out as its packets: when nobody else reads them.
func (d *document) packetReady(o *OutputConfig) bool {
	if o.RTP == nil || o.RTP.Payload.V != rtp.Raw || d.isp(o.From) == nil {
		return false
	}
	for i := range d.Kernels {
		if pixels, _ := d.kernelPixels(&d.Kernels[i]); d.Kernels[i].From == o.From && pixels == o.pixels() && o.shrink() == 1 {
			return false
		}
	}
	return !slices.ContainsFunc(d.Outputs, func(x OutputConfig) bool {
		return x.Name != o.Name && x.From == o.From && x.shrink() == o.shrink() && x.pixels() == o.pixels()
	})
}

// shrink is how many times narrower and lower than the sensor's frame an output is.
func (c *OutputConfig) shrink() int {
	switch c.Scale {
	case "half":
		return 2
	case "quarter":
		return 4
	}
	return 1
}

// formats are what an output wants of its point of the graph when the source delivers in, and what it sends: the same
// at its own frame rate.
func (c *OutputConfig) formats(in pipeline.Format) (want, own pipeline.Format, err error) {
	if c.tellsResults() {
		want, err = smallest(in)
		return want, want, err
	}
	pixel, width, height := c.pixels(), in.Width, in.Height
	by := c.shrink()
	if width%by != 0 || height%by != 0 {
		return want, own, fmt.Errorf("%s of %dx%d is no whole number of pixels and lines", c.Scale, width, height)
	}
	width, height = width/by, height/by
	if want, err = pipeline.NewFormat(pixel, width, height, in.Rate); err != nil {
		return want, own, err
	}
	if own = want; c.Rate.V.Num > 0 && c.Rate.V.Period() > in.Rate.Period() {
		own.Rate = c.Rate.V
	}
	if c.RTP == nil {
		return want, own, nil
	}
	return want, own, c.RTP.config(c.Name).CheckFormat(own)
}

// checkOutput settles where an output's frames come from, and whether they can be sent. taken are the destinations so
// far.
func (d *document) checkOutput(path string, o *OutputConfig, taken map[string]string) error {
	if !one(o.RTP != nil, o.Results != nil, o.FPGA != nil) {
		return d.errorAt(path, "say where the frames go: give it one section of rtp, results and fpga")
	}
	if o.tellsResults() {
		if err := d.checkResults(path, o, taken); err != nil {
			return err
		}
	}
	if o.RTP != nil {
		if err := d.checkRTP(path+".rtp", o, taken); err != nil {
			return err
		}
	}
	if o.From == "" {
		o.From = d.Sources[0].Name
		if i := slices.IndexFunc(d.ISP, func(c ISPConfig) bool { return c.From == o.From }); i >= 0 {
			o.From = d.ISP[i].Name
		}
	}
	source, stage, own := d.source(d.sourceOf(o.From)), d.isp(o.From), d.kernel(o.From)
	if source == nil {
		return d.errorAt(path+".from", "there is no source, isp or kernel %q", o.From)
	}
	if own != nil {
		if err := d.checkBehindKernel(path, o, own); err != nil {
			return err
		}
	}
	in, known := source.format()
	switch {
	case !known && o.shrink() > 1:
		return d.errorAt(path+".scale", "the pictures of source %q are sent as they are: leave scale out", source.Name)
	case !known:
		return nil // the file tells when it is opened
	case stage == nil && own == nil && o.tellsResults():
		return nil
	case stage == nil && own == nil:
		return d.errorAt(path+".from", "source %q delivers Bayer frames, which need an isp: add one with from: %s, and name it here", source.Name, source.Name)
	}
	if _, _, err := o.formats(in); err != nil {
		return d.errorAt(path+".rtp.payload", "%s", plain(err, rtp.ErrFormat))
	}
	if o.FPGA != nil {
		return d.checkFPGA(path+".fpga", o.FPGA, source.Name, taken)
	}
	return nil
}

// checkFPGA settles which card the frames go to. No two outputs may use one of its channels.
func (d *document) checkFPGA(path string, o *FPGAOutConfig, origin string, taken map[string]string) error {
	if o.Card == "" {
		o.Card = origin
	}
	source := d.source(o.Card)
	if source == nil || source.card() == "" {
		return d.errorAt(path+".card", "%q is no source with an FPGA", o.Card)
	}
	key := fmt.Sprintf("fpga %s %d", source.card(), o.Channel)
	if first, ok := taken[key]; ok {
		return d.errorAt(path, "channel %d of %q is used by %s already", o.Channel, o.Card, first[2:])
	}
	taken[key] = path
	return nil
}

// bareStream is the kind of a stream without camera block and trailers.
const bareStream = "bare"

// bare says whether the source is such a stream.
func (s *SourceConfig) bare() bool {
	return s.FPGA != nil && s.FPGA.Stream == bareStream || s.Model != nil && s.Model.Stream == bareStream
}

// card names the FPGA of a source: the device file, or the source that has a model to itself; empty when it has none.
func (s *SourceConfig) card() string {
	switch {
	case s.FPGA != nil:
		return filepath.Clean(s.FPGA.Device)
	case s.Model != nil:
		return s.Name
	}
	return ""
}

// checkRTP checks what does not depend on the frames. No two streams may go to one destination.
func (d *document) checkRTP(path string, o *OutputConfig, taken map[string]string) error {
	for i, dest := range o.RTP.Destinations {
		at := fmt.Sprintf("%s.destinations[%d]", path, i)
		if err := send.CheckDestination(dest); err != nil {
			return d.errorAt(at, "%v", err)
		}
		key := strings.ToLower(dest)
		if a, err := netip.ParseAddrPort(dest); err == nil {
			key = netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).String()
			if a.Addr().IsMulticast() { // a group may be sent to by several interfaces
				key += "%" + o.RTP.Interface
			}
		}
		if first, ok := taken[key]; ok {
			return d.errorAt(at, "%s is the destination of %s already: give it another port", dest, first[2:])
		}
		taken[key] = at
	}
	if o.RTP.Payload.V != rtp.Raw && o.RTP.Pixels != "" {
		return d.errorAt(path+".pixels", "pixels are of payload raw: leave them out")
	}
	if o.RTP.Payload.V != rtp.Results && o.RTP.Session != "" {
		return d.errorAt(path+".session", "session is of payload results: leave it out")
	}
	if err := o.RTP.config(o.Name).Validate(); err != nil {
		return d.errorAt(path, "%s", plain(err, rtp.ErrConfig))
	}
	return nil
}

// stageQueue is how many frames may wait for an isp.
const stageQueue = 2

// checkSlots compares each source's slots with what its consumers may hold, and two for the next frames.
func (d *document) checkSlots() error {
	for i, s := range d.Sources {
		need := 2
		for _, c := range d.ISP {
			if c.From == s.Name {
				need += stageQueue + 1
			}
		}
		for _, c := range d.Kernels {
			if c.From == s.Name {
				need += stageQueue + kernel.Holds
			}
		}
		for _, o := range d.Outputs {
			if o.From == s.Name && o.RTP != nil {
				need += o.depth() + o.RTP.config(o.Name).Holds(pipeline.Format{})
			} else if o.From == s.Name {
				need += o.depth() + 1
			}
		}
		if s.Slots < need {
			path := fmt.Sprintf("$.sources[%d].slots", i)
			return d.errorAt(path, "%d are too few: what reads from %q may hold so many frames that it needs %d; give it more, or the outputs shorter queues",
				s.Slots, s.Name, need)
		}
	}
	return nil
}

// depth is how many frames may wait for an output.
func (c *OutputConfig) depth() int {
	if c.Queue == 0 {
		return 2
	}
	return c.Queue
}
