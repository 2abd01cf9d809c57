// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// shrink returns the number by which the width and the height of the sensor's frame are divided.
func (o *Output) shrink() int {
	switch o.section.Scale {
	case "half":
		return 2
	case "quarter":
		return 4
	}
	return 1
}

// restarts returns a copy of the section without the values that can change while the output runs: all destinations of an
// RTP stream but the first, which its SDP names.
func (c *OutputSection) restarts() *OutputSection {
	fixed := *c
	if c.RTP != nil {
		stream := *c.RTP
		stream.Destinations = stream.Destinations[:min(1, len(stream.Destinations))]
		fixed.RTP = &stream
	}
	return &fixed
}

// fits refuses an output that cannot send the pictures that it would get.
func (o *Output) fits(at yamlfile.Section, a *Appliance, in Pictures) error {
	source, stage := a.Source(o.Source), a.Stage(o.From)
	_, samples := source.Format.Pixel.Samples()
	what := fmt.Sprintf("source %q", o.From)
	if stage != nil {
		what = fmt.Sprintf("%s %q", stage.what, o.From)
	}
	switch {
	case o.results:
	case o.asIs && in.Pixel == pipeline.MJPEG:
		return at.Key("from").Errorf("%s delivers JPEG files, which %s", what, decodes)
	case o.asIs && o.shrink() > 1:
		return at.Key("scale").Errorf("%s is taken as it is: leave scale out", what)
	case o.asIs:
	case in.None:
		return at.Key("from").Errorf("%s outputs results, not pictures: read from %q", what, stage.From)
	case !in.Any && o.shrink() > 1 && (stage != nil || !in.Known):
		return at.Key("scale").Errorf("the pictures of %s cannot be scaled: leave scale out", what)
	case stage != nil && !in.Any && in.Known && in.Pixel != o.pixels:
		return at.Key("from").Errorf("%s makes %s, but the output sends %s: give both the same pixels", what, in.Pixel, o.pixels)
	case stage == nil && source.FormatKnown && samples:
		return at.Key("from").Errorf("%s delivers Bayer frames, which need an isp: add one with from: %s, and name it here", what, o.From)
	case stage == nil && source.FormatKnown && in.Pixel != o.pixels && !o.sendsFiles(in.Pixel):
		return at.Key("from").Errorf("%s delivers %s, but the output sends %s: add an isp with from: %s, and name it here", what, in.Pixel, o.pixels, o.From)
	case stage == nil && source.FormatKnown && o.shrink() > 1:
		return at.Key("scale").Errorf("the pictures of %s cannot be scaled: add an isp with from: %s, and name it in from", what, o.From)
	case in.Converted && o.pixels == pipeline.UYVP:
		return at.Key("from").Errorf("%s has pictures of 8 bits: leave pixels: uyvp out", what)
	}
	if !source.FormatKnown {
		return nil // known when the file is opened
	}
	_, _, err := o.Formats(source.Format)
	return err
}

// decodes completes the message that frames are JPEG files.
const decodes = "an isp decodes: add one that reads from it, and name it here"

// sendsFiles reports whether the output sends frames with these pixels as they are because they are JPEG files.
func (o *Output) sendsFiles(p pipeline.PixelFormat) bool {
	stream, is := o.Kind.(*RTP)
	return is && stream.Payload.V == rtp.JPEG && p == pipeline.MJPEG
}

// slice sets Slices and Whole of o: frames leave while they arrive, unless the output's latency forbids it or a part on
// their path works on whole frames. It refuses latency: slice if frames cannot leave while they arrive. It sets Slices of
// the source if the isp makes the pictures of an RTP stream while their frames arrive: pictures that leave whole, such as
// encoded ones, are then ready soon after the frame's last line.
func (o *Output) slice(at yamlfile.Section, a *Appliance) error {
	source, stage := a.Source(o.Source), a.Stage(o.From)
	stream, is := o.Kind.(*RTP)
	o.Whole = o.whole(source, stage)
	if !is || stream.Payload.V != rtp.Raw {
		o.Whole = "only rtp with payload raw leaves in slices"
	}
	switch o.section.Latency {
	case "frame":
		o.Whole = "latency: frame"
	case "slice":
		if o.Whole != "" {
			return at.Errorf("%s: leave latency out", o.Whole)
		}
	}
	o.Slices = o.Whole == ""
	for stage != nil && stage.From != o.Source {
		stage = a.Stage(stage.From)
	}
	if is && o.section.Latency != "frame" && o.whole(source, stage) == "" {
		source.Slices = true
	}
	return nil
}

// whole returns why the frames of source cannot leave stage before they are complete, or "" if they can. stage is nil if
// there is none.
func (o *Output) whole(source *Source, stage *Stage) string {
	switch {
	case source.Card.Name == "":
		return fmt.Sprintf("the frames of %q do not come in slices, only those of an FPGA's camera do", o.Source)
	case stage == nil || !stage.Pictures.Any || stage.From != o.Source:
		return fmt.Sprintf("%q works on whole frames, only an isp behind the camera works on slices", o.From)
	}
	if k, is := stage.Kind.(*ISP); is && k.config.Turn.Whole() {
		return fmt.Sprintf("isp %q turns the pictures (flip: %s, rotate: %d), and has their lines when the frame is complete",
			o.From, cmp.Or(k.Flip, "none"), k.Rotate)
	}
	return ""
}

// packetReady reports whether the isp can lay out an output's pictures as packets. It can if the output reads from an
// isp and nothing else reads the same pictures.
func (a *Appliance) packetReady(o *Output) bool {
	stage := a.Stage(o.From)
	if stage == nil || !stage.Pictures.Any {
		return false
	}
	return !slices.ContainsFunc(a.Stages, func(s Stage) bool {
		return s.From == o.From && s.wants == o.pixels && o.shrink() == 1
	}) && !slices.ContainsFunc(a.Outputs, func(x Output) bool {
		return x.Name != o.Name && x.From == o.From && x.shrink() == o.shrink() && x.pixels == o.pixels
	})
}

// Formats returns want, the format that the output requests from From when its source delivers frames of format in, and
// own, the format that it sends. own differs from want in frame rate only. If the output takes the frames as they are,
// want is zero and own is in. Formats returns an error if the output cannot send its format.
func (o *Output) Formats(in pipeline.Format) (want, own pipeline.Format, err error) {
	if o.asIs {
		return want, in, o.sends(in)
	}
	if o.results {
		if want, err = o.smallest(in); err != nil {
			err = o.formatAt.Errorf("%s", plain(err, pipeline.ErrFormat))
		}
		return want, want, err
	}
	if want, err = o.picture(in); err != nil {
		return want, own, err
	}
	if own = want; o.Rate.Num > 0 && o.Rate.Period() > in.Rate.Period() {
		own.Rate = o.Rate
	}
	if err := o.sends(own); err != nil {
		return want, own, err
	}
	if o.packed && o.packets != nil {
		if ready, ok := o.packets(want); ok {
			want, ready.Rate = ready, own.Rate
			own = ready
		}
	}
	return want, own, nil
}

// picture returns the format of the pictures that the output requests when its source delivers frames of format in.
func (o *Output) picture(in pipeline.Format) (want pipeline.Format, err error) {
	width, height := o.Size(in)
	by := o.shrink()
	if o.From == o.Source && by == 1 && (in.Pixel == o.pixels || o.sendsFiles(in.Pixel)) {
		return in, nil
	}
	if width%by != 0 || height%by != 0 {
		return want, o.formatAt.Errorf("%s of %dx%d is no whole number of pixels and lines", o.section.Scale, width, height)
	}
	if want, err = pipeline.NewFormat(o.pixels, width/by, height/by, in.Rate); err != nil {
		return want, o.formatAt.Errorf("%w", err)
	}
	switch {
	case o.shown && o.color != pipeline.ColorNone:
		want.Color = o.color
	case !o.shown && o.pixels == pipeline.Grey && in.Pixel != o.pixels: // a picture (Format.As)
		want.Color = pipeline.BT709Limited
	case !o.shown && in.Pixel == o.pixels: // nothing converts them
		want.Color = in.Color
	}
	return want, nil
}

// sends refuses frames of format f if the output cannot send them.
func (o *Output) sends(f pipeline.Format) error {
	if o.check == nil {
		return nil
	}
	if err := o.check(f); err != nil {
		return o.formatAt.Errorf("%w", err)
	}
	return o.keeps(f)
}

// keeps refuses a recording whose pictures before a trigger, encoded from frames of format f, would not fit in memory.
func (o *Output) keeps(f pipeline.Format) error {
	c := o.section.RTP
	if o.Video == nil || o.Video.Trigger == nil || c.Payload.V != rtp.H264 {
		return nil
	}
	_, bits := c.Bits(f)
	longest := time.Duration(float64(record.MaxKept) * 8 / float64(bits) * float64(time.Second)).Truncate(time.Second)
	if before := o.Video.Trigger.Before.V; before > longest {
		return o.beforeAt.Errorf("%v: pictures of up to %d kbit/s are kept in memory, at most 1 GiB: give at most %v, or a lower bitrate",
			before, bits/1000, longest)
	}
	return nil
}

// Size returns the size of the pictures, before scale, when the output's source delivers frames of format in.
func (o *Output) Size(in pipeline.Format) (width, height int) {
	if o.turned {
		return in.Height, in.Width
	}
	return in.Width, in.Height
}

// viewWidth is the width in pixels above which pictures for viewing are smaller than the output's own, if they can be.
const viewWidth = 960

// View returns the format for viewing what the output sends when its source delivers frames of format in. from is 0 if From
// makes such pictures, as an isp does, or else the pixel format of the frames of which they have to be made. view is zero if
// the output cannot be viewed.
func (o *Output) View(in pipeline.Format) (view pipeline.Format, from pipeline.PixelFormat) {
	width, height := o.Size(in)
	if _, samples := in.Pixel.Samples(); o.passed || o.From == o.Source && !samples {
		by := (width + viewWidth - 1) / viewWidth
		if view, err := pipeline.NewFormat(pipeline.I420, width/by&^1, height/by&^1, in.Rate); err == nil {
			return view, cmp.Or(o.passes, in.Pixel)
		}
	}
	by := o.shrink()
	for by < 4 && width/by > viewWidth && width%(4*by) == 0 && height%(4*by) == 0 {
		by *= 2
	}
	f, err := pipeline.NewFormat(pipeline.I420, width/by, height/by, in.Rate)
	if !o.shown || err != nil {
		return pipeline.Format{}, 0
	}
	return f, 0
}

// smallest returns the format of the smallest picture that a stage can make from frames of format in to carry results:
// a grey one.
func (o *Output) smallest(in pipeline.Format) (pipeline.Format, error) {
	width, height := o.Size(in)
	by := 1
	for by < 4 && width%(2*by) == 0 && height%(2*by) == 0 && min(width, height) >= 4*by {
		by *= 2
	}
	f, err := pipeline.NewFormat(pipeline.Grey, width/by, height/by, in.Rate)
	f.Color = pipeline.BT709Limited
	return f, err
}
