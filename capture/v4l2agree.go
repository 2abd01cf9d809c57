// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/videodev"
)

// agree sets the format, the rate and the controls, and reads last what has become of the format.
func (s *v4l2Session) agree() error {
	c := s.camera
	s.settings.find(s)
	if err := s.settings.configure(s, setFormats); err != nil {
		return err
	}
	code, l, err := s.choose()
	if err != nil {
		return err
	}
	s.settings.read(s) // the size may choose a mode of the sensor
	if _, err := s.settings.rate(s, l, true); err != nil {
		return err
	}
	if err := s.settings.apply(s); err != nil {
		return err
	}
	chosen := l // rate and controls may have changed it, or its lines
	if l, err = videodev.Current(s.device, s.kind); err != nil {
		return err
	}
	if err := s.check(l, chosen); err != nil {
		return fmt.Errorf("after rate and controls were set: %w", err)
	}
	rate, err := s.settings.rate(s, l, false)
	if err != nil {
		return fmt.Errorf("after controls were set: %w", err)
	}
	shift := 0
	if samples, raw := code.pixel.Samples(); c.cfg.Shift != nil {
		shift = *c.cfg.Shift
	} else if raw {
		shift = tegraShift(s.about.Driver, c.host.root, samples.Bits)
	}
	s.transfer, err = newTransfer(code, l, rate, shift, c.cfg.Tight)
	return err
}

// choose sets the format: the configured one, completed, in the first session, by what the device is set to.
func (s *v4l2Session) choose() (code v4l2Code, l videodev.Layout, err error) {
	c := s.camera
	want := videodev.Layout{Width: uint32(c.cfg.Width), Height: uint32(c.cfg.Height)}
	var now videodev.Layout
	if want.Width == 0 || want.Height == 0 || c.cfg.Pixel == 0 {
		if now, err = videodev.Current(s.device, s.kind); err != nil {
			return code, l, err
		}
	}
	if want.Width == 0 || want.Height == 0 {
		want.Width, want.Height = now.Width, now.Height
	}
	offered := videodev.Codes(s.device, s.kind)
	code, ok := s.code(c.cfg.Pixel, now.Pixels, offered)
	if !ok {
		return code, l, fmt.Errorf("%w: %s: it offers %s", pipeline.ErrFormat, orAny(c.cfg.Pixel), s.offer(offered))
	}
	want.Pixels = code.code
	l, err = videodev.Choose(s.device, s.kind, want.Pixels, want.Width, want.Height)
	switch {
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ENOLINK):
		return code, l, fmt.Errorf("%w: it offers %s", s.repair(err), s.offer(offered))
	case err != nil:
		return code, l, err
	}
	return code, l, s.check(l, want)
}

// check refuses a format of other pixels or another size than the wanted one, and one that is interlaced.
func (s *v4l2Session) check(l, want videodev.Layout) error {
	switch {
	case l.Pixels != want.Pixels || l.Width != want.Width || l.Height != want.Height:
		return fmt.Errorf("%w: it makes %s %dx%d of %s %dx%d: it offers %s", pipeline.ErrFormat, videodev.Letters(l.Pixels), l.Width, l.Height,
			videodev.Letters(want.Pixels), want.Width, want.Height, s.offer(videodev.Codes(s.device, s.kind)))
	case l.Field != videodev.FieldNone && l.Field != videodev.FieldAny:
		return fmt.Errorf("%w: its frames are interlaced (field order %d): choose a progressive size or rate", pipeline.ErrFormat, l.Field)
	}
	return nil
}

// code returns the format that the device is to send: one for the pixels of the camera, or, if they are open, what it is set
// to, or the first that the pipeline has.
func (s *v4l2Session) code(pixel pipeline.PixelFormat, now uint32, offered []uint32) (v4l2Code, bool) {
	if pixel != 0 {
		for _, c := range v4l2Codes(pixel) {
			if slices.Contains(offered, c.code) {
				return c, true
			}
		}
		return v4l2Code{}, false
	}
	for _, code := range append([]uint32{now}, offered...) {
		if c, has := v4l2CodeOf(code); has && c.pixel != pipeline.MJPEG { // those are asked for
			return c, true
		}
	}
	return v4l2Code{}, false
}

func orAny(p pipeline.PixelFormat) string {
	if p == 0 {
		return "none of its formats is known here"
	}
	return "no " + p.String()
}

// offer describes what the device offers.
func (s *v4l2Session) offer(codes []uint32) string {
	var list []string
	for _, code := range codes {
		list = append(list, videodev.Offer(s.device, code))
	}
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, " | ")
}

// rateSlack limits the difference of a device's rate from the configured one, as a part of it.
const rateSlack = 0.01

// nearRate returns the rate of a camera whose device has a rate: the configured one, if there is one and it is near.
func nearRate(want pipeline.Rate, frame videodev.Fraction) (pipeline.Rate, bool) {
	has := pipeline.Rate{Num: int(frame.Denominator), Den: int(frame.Numerator)}
	if want.Num == 0 {
		return reduced(has), true
	}
	a, b := float64(want.Num)/float64(want.Den), float64(has.Num)/float64(has.Den)
	return want, math.Abs(a-b) <= rateSlack*a
}

// reduced returns a rate with the smallest numbers.
func reduced(r pipeline.Rate) pipeline.Rate {
	a, b := r.Num, r.Den
	for b != 0 {
		a, b = b, a%b
	}
	return pipeline.Rate{Num: r.Num / max(a, 1), Den: r.Den / max(a, 1)}
}

// A v4l2Graph is the media graph in which a camera's device stands. Its zero value is that of a camera without one.
type v4l2Graph struct {
	media  string // device file
	graph  *videodev.Graph
	path   []videodev.Link // from the sensor to the device
	sensor int
}

// readGraph reads the graph, or returns the zero v4l2Graph if the device has none with a sensor.
func readGraph(s *v4l2Session, path string) (g v4l2Graph) {
	host, log := s.camera.host, s.camera.cfg.Logger
	media, err := host.Media(s.number)
	if err != nil {
		return v4l2Graph{}
	}
	d, err := s.openFile(media)
	if err != nil {
		log.Debug("the camera's media graph cannot be opened", "device", media, "error", err)
		return v4l2Graph{}
	}
	defer d.Close()
	g.media = media
	if g.graph, err = videodev.Topology(d); err == nil {
		g.path, g.sensor, err = g.graph.Path(s.number)
	}
	if err != nil {
		log.Debug("the camera's media graph has no sensor for it", "device", path, "media", media, "error", err)
		return v4l2Graph{}
	}
	return g
}

// openEntity opens the device file of a subdevice.
func (s *v4l2Session) openEntity(entity int) (*watchedFile, error) {
	e := s.graph.graph.Entities[entity]
	if !e.Subdevice {
		return nil, fmt.Errorf("%w: %s has no device file", videodev.ErrNoDevice, e.Name)
	}
	path, err := s.camera.host.File(e.Node)
	if err != nil {
		return nil, err
	}
	return s.openFile(path)
}

// repair adds to an error the commands that make the media graph carry the camera's format, if it does not.
func (s *v4l2Session) repair(err error) error {
	if s.graph.graph == nil || !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ENOLINK) && !errors.Is(err, unix.EINVAL) {
		return err
	}
	c := s.camera
	want := videodev.PadFormat{Width: uint32(c.cfg.Width), Height: uint32(c.cfg.Height), Code: videodev.BusCode(uint32(c.cfg.Pixel))}
	if t := s.transfer; t != nil {
		want = videodev.PadFormat{Width: t.layout.Width, Height: t.layout.Height, Code: videodev.BusCode(t.layout.Pixels)}
	}
	if want.Width == 0 || want.Height == 0 {
		return err
	}
	lines := s.graph.graph.Repair(s.graph.media, s.graph.path, want, func(entity, pad int) (videodev.PadFormat, bool) {
		d, err := s.openEntity(entity)
		if err != nil {
			return videodev.PadFormat{}, false
		}
		defer d.Close()
		f, err := videodev.Pad(d, pad)
		return f, err == nil
	})
	if len(lines) == 0 {
		return err
	}
	return fmt.Errorf("%w: the media graph does not carry these frames: run %s", err, strings.Join(lines, "; "))
}
