// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tegracast/tegracast/pipeline"
)

// An OutputKind is where frames go: one of the fields of OutputKinds.
type OutputKind interface {
	// resolve fills in the defaults of the section, refuses what cannot be, and fills in what follows from it for o.
	// Where o's frames come from is known then.
	resolve(r *resolver, at section, o *Output) error
	// check refuses frames that cannot be sent. They have o's own rate.
	check(f pipeline.Format) error
	// packets is f laid out as the packets that are sent; false when there is no such layout.
	packets(f pipeline.Format) (pipeline.Format, bool)
}

// Output is an output.
type Output struct {
	Name   string
	From   string // the source or the stage that it reads from
	Source string // where those frames come from
	Depth  int    // frames that may wait
	Rate   pipeline.Rate
	Policy pipeline.Policy
	Card   string // name of the Card that the frames go to; empty: none
	Kind   OutputKind
	At     Place
	OpenAt Place // what is wrong when it cannot be opened

	results  bool                 // it sends results, and no pixels
	asIs     bool                 // of a source or a kernel, whose frames are not made for it
	packed   bool                 // the isp may lay its pictures out as packets: nobody else reads them
	pixels   pipeline.PixelFormat // what it wants of an isp
	shrink   int                  // how many times narrower and lower than the sensor's frame
	holds    int                  // frames in its hands
	formatAt Place                // what is wrong when the pictures cannot be sent
	section  *OutputSection
}

// Same reports whether the sections of two outputs, with the defaults, say the same.
func (o *Output) Same(other *Output) bool { return same(o.section, other.section) }

// scales are how many times narrower and lower a picture is.
var scales = map[string]int{"": 1, "full": 1, "half": 2, "quarter": 4}

// defaultDepth is how many frames may wait for an output that does not say.
const defaultDepth = 2

func (r *resolver) output(at section, c *OutputSection) (Output, error) {
	o := Output{
		Name: c.Name, Depth: cmp.Or(c.Queue, defaultDepth), Rate: c.Rate.V, Policy: c.Policy.V,
		shrink: scales[c.Scale], holds: 1, At: at.place(), OpenAt: at.place(), section: c,
	}
	kind, kindAt, err := one[OutputKind](at, c.OutputKinds)
	if err != nil {
		return o, err
	}
	if c.From == "" { // the first isp of the first source
		c.From = r.out.Sources[0].Name
		if i := slices.IndexFunc(r.file.ISP, func(isp *ISP) bool { return isp.From == c.From }); i >= 0 {
			c.From = r.file.ISP[i].Name
		}
	}
	in, ok := r.out.pictures(c.From)
	if !ok {
		return o, at.key("from").errorf("there is no source, isp or kernel %q", c.From)
	}
	o.From, o.Source, o.Kind, o.pixels = c.From, r.out.origin(c.From), kind, pipeline.UYVY
	o.formatAt = kindAt.place()
	if err := kind.resolve(r, kindAt, &o); err != nil {
		return o, err
	}
	o.asIs = o.results && !in.Any && !in.None
	if o.results && c.Scale != "" {
		return o, at.key("scale").errorf("results have no size: leave scale out")
	}
	return o, o.fits(at, r.out, in)
}

// fits refuses an output that cannot send what it would get.
func (o *Output) fits(at section, a *Appliance, in Pictures) error {
	source, stage := a.Source(o.Source), a.Stage(o.From)
	what := fmt.Sprintf("source %q", o.From)
	if stage != nil {
		what = fmt.Sprintf("%s %q", stage.what, o.From)
	}
	switch {
	case o.results:
	case in.None:
		return at.key("from").errorf("%s outputs results, not pictures: read from %q", what, stage.From)
	case !in.Any && o.shrink > 1 && (stage != nil || !in.Known):
		return at.key("scale").errorf("the pictures of %s cannot be scaled: leave scale out", what)
	case stage != nil && !in.Any && in.Known && in.Pixel != o.pixels:
		return at.key("from").errorf("%s makes %s, but the output sends %s: give both the same pixels", what, in.Pixel, o.pixels)
	case stage == nil && source.FormatKnown:
		return at.key("from").errorf("%s delivers Bayer frames, which need an isp: add one with from: %s, and name it here", what, o.From)
	}
	if !source.FormatKnown || o.asIs {
		return nil // the file tells when it is opened
	}
	_, _, err := o.Formats(source.Format)
	return err
}

// packetReady says whether the isp can lay an output's pictures out as its packets: when nobody else reads them.
func (a *Appliance) packetReady(o *Output) bool {
	stage := a.Stage(o.From)
	if stage == nil || !stage.Pictures.Any {
		return false
	}
	return !slices.ContainsFunc(a.Stages, func(s Stage) bool {
		return s.From == o.From && s.wants == o.pixels && o.shrink == 1
	}) && !slices.ContainsFunc(a.Outputs, func(x Output) bool {
		return x.Name != o.Name && x.From == o.From && x.shrink == o.shrink && x.pixels == o.pixels
	})
}

// Formats are what the output wants of From when its source delivers in, and what it sends: the same, at its own frame rate.
// A want without pixels takes the frames as they are.
func (o *Output) Formats(in pipeline.Format) (want, own pipeline.Format, err error) {
	if o.results {
		if o.asIs {
			return pipeline.Format{}, in, nil
		}
		if want, err = smallest(in); err != nil {
			err = o.formatAt.Errorf("%s", plain(err, pipeline.ErrFormat))
		}
		return want, want, err
	}
	width, height, by := in.Width, in.Height, o.shrink
	if width%by != 0 || height%by != 0 {
		return want, own, o.formatAt.Errorf("%s of %dx%d is no whole number of pixels and lines", o.section.Scale, width, height)
	}
	if want, err = pipeline.NewFormat(o.pixels, width/by, height/by, in.Rate); err != nil {
		return want, own, o.formatAt.Errorf("%w", err)
	}
	if own = want; o.Rate.Num > 0 && o.Rate.Period() > in.Rate.Period() {
		own.Rate = o.Rate
	}
	if err := o.Kind.check(own); err != nil {
		return want, own, o.formatAt.Errorf("%w", err)
	}
	if ready, ok := o.Kind.packets(want); o.packed && ok {
		want, ready.Rate = ready, own.Rate
		own = ready
	}
	return want, own, nil
}
