// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"path/filepath"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline"
)

// V4L2 is a camera with a driver of the kernel (Video4Linux2): on CSI, USB, or a capture card.
type V4L2 struct {
	Device    string            `yaml:"device" jsonschema:"pattern=^/" jsonschema_description:"Device file, such as /dev/video0, or a link that keeps its name, such as those in /dev/v4l/by-id. A camera that was unplugged is found again also under another name."`
	Width     int               `yaml:"width,omitempty" jsonschema:"minimum=2,maximum=32768" jsonschema_description:"Width of a frame, in pixels (default: what the camera is set to)."`
	Height    int               `yaml:"height,omitempty" jsonschema:"minimum=2,maximum=32768" jsonschema_description:"Height of a frame, in lines (default: what the camera is set to)."`
	Sensor    *Sensor           `yaml:"sensor,omitempty" jsonschema_description:"The samples of a camera that delivers those of its sensor, for an isp. With it, width and height are needed."`
	Pixels    string            `yaml:"pixels,omitempty" jsonschema:"enum=uyvy,enum=nv12,enum=i420,enum=rgb,enum=mjpeg" jsonschema_description:"The pictures of a camera that makes some itself. uyvy: also from a camera that has YUYV. mjpeg: JPEG files, which rtp with payload jpeg sends as they are, and an isp decodes. For an isp give width and height, too. Without pixels and sensor, the camera delivers pictures as it is set to. Interlaced ones are refused."`
	Rate      Rate              `yaml:"rate,omitempty" jsonschema_description:"Frames a second, such as 30 or 30000/1001 (default 30 with sensor, or with pixels, width and height, otherwise what the camera is set to)."`
	Exposure  Duration          `yaml:"exposure,omitempty" jsonschema_description:"Exposure time, such as 8ms (default: what the camera is set to)."`
	Gain      float64           `yaml:"gain,omitempty" jsonschema:"minimum=0.00390625,maximum=256" jsonschema_description:"Gain of the sensor (default: what the camera is set to)."`
	GainUnit  float64           `yaml:"gain_unit,omitempty" jsonschema:"exclusiveMinimum=0" jsonschema_description:"Value of the camera's gain control that means a gain of 1 (default: what NVIDIA's sensor drivers say, or the smallest value that the control takes)."`
	Controls  map[string]string `yaml:"controls,omitempty" jsonschema_description:"Other controls of the camera or of its sensor, by their names (v4l2-ctl --list-ctrls-menus) or numbers (0x009a2008): a number, true, false, or the name of a menu's item, each in quotes."`
	Shift     *int              `yaml:"shift,omitempty" jsonschema:"minimum=0,maximum=8" jsonschema_description:"Bits by which samples of 10, 12 or 14 bits stand too high in their words of 16 bits (default: 16 less their number on a Jetson with NVIDIA's driver, otherwise 0)."`
	Triggered bool              `yaml:"triggered,omitempty" jsonschema_description:"Something else triggers the frames: that none comes is no fault. rate then says how often they come."`
	Timeout   Duration          `yaml:"frame_timeout,omitempty" jsonschema_description:"Maximum time without a frame, while there is memory for one, before the camera is restarted (default 1s; four frame periods at least)."`
}

// Pixel returns the pixels that the section names, or 0 if it leaves them to the camera.
func (c *V4L2) Pixel() pipeline.PixelFormat {
	if c.Sensor != nil {
		p, _ := c.Sensor.Pixel()
		return p
	}
	return map[string]pipeline.PixelFormat{
		"uyvy": pipeline.UYVY, "nv12": pipeline.NV12, "i420": pipeline.I420, "rgb": pipeline.RGB24, "mjpeg": pipeline.MJPEG,
	}[c.Pixels]
}

func (c *V4L2) resolve(r *resolver, at yamlfile.Section, s *Source) error {
	known := c.Sensor != nil || c.Pixels != "" && c.Width != 0
	if known && c.Rate.V.Num == 0 {
		c.Rate.V = defaultRate
	}
	switch {
	case !filepath.IsAbs(c.Device):
		return at.Key("device").Errorf("%q: name a device file such as /dev/video0", c.Device)
	case (c.Width == 0) != (c.Height == 0):
		return at.Errorf("give both width and height, or neither")
	case c.Sensor != nil && c.Width == 0:
		return at.Errorf("give width and height of the sensor's frames")
	case c.Pixels == "mjpeg" && c.Width == 0:
		return at.Errorf("give width and height of the JPEG files")
	case c.Sensor != nil && c.Pixels != "":
		return at.Key("pixels").Errorf("sensor says what the camera delivers: leave pixels out")
	case c.Exposure.V < 0 || c.Rate.V.Num > 0 && c.Exposure.V > c.Rate.V.Period():
		return at.Key("exposure").Errorf("%v: must be from 0 to the frame period, %v", c.Exposure.V, c.Rate.V.Period())
	case c.Shift != nil && *c.Shift > 0 && (c.Sensor == nil || c.Sensor.Packed || c.Sensor.Bits == 8 || *c.Shift > 16-cmp.Or(c.Sensor.Bits, 10)):
		return at.Key("shift").Errorf("%d: must be at most 16 less the bits of a sample, and is for unpacked samples of 10, 12 or 14 bits only", *c.Shift)
	case c.Timeout.V < 0:
		return at.Key("frame_timeout").Errorf("%v: must be positive, such as 1s", c.Timeout.V)
	}
	if err := c.Sensor.check(at.Key("sensor"), true); err != nil {
		return err
	}
	if known {
		f, err := pipeline.NewFormat(c.Pixel(), c.Width, c.Height, c.Rate.V)
		if err != nil {
			return at.Key("width").Errorf("%s", plain(err, pipeline.ErrFormat))
		}
		s.Format, s.FormatKnown = f, true
	}
	if s.Triggered = c.Triggered; c.Sensor == nil {
		s.cpuReads = "pictures of a camera are converted, or sent, by the CPU: leave write_combined out; only samples, with sensor, can be for the GPU alone"
	}
	for i := range r.out.Sources {
		if o, is := r.out.Sources[i].Kind.(*V4L2); is && filepath.Clean(o.Device) == filepath.Clean(c.Device) {
			return at.Key("device").Errorf("%s is already source %q: name that one in from", c.Device, r.out.Sources[i].Name)
		}
	}
	return nil
}
