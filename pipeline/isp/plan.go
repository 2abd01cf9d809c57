package isp

import (
	"fmt"

	"tegracast/pipeline"
)

// An output is one wanted format, and from which row of pixels its writer takes them.
type output struct {
	format pipeline.Format
	half   bool
}

// A plan is what Process needs to know about the formats. It does not change once made.
type plan struct {
	in      pipeline.Format
	outs    []output
	full    bool // some output is of full size
	half    bool // some output is of half size
	r, g, b *[1 << 16]uint16
}

func newPlan(c Config, in pipeline.Format, want []pipeline.Format) (*plan, error) {
	if err := checkInput(in); err != nil {
		return nil, err
	}
	p := &plan{in: in}
	for i, f := range want {
		o, err := newOutput(in, f)
		if err != nil {
			return nil, fmt.Errorf("output %d: %w", i, err)
		}
		p.outs = append(p.outs, o)
		p.half = p.half || o.half
		p.full = p.full || !o.half
	}
	p.r = linearTable(c.BlackLevel, fixed(c.Gains.R))
	p.g = linearTable(c.BlackLevel, fixed(c.Gains.G))
	p.b = linearTable(c.BlackLevel, fixed(c.Gains.B))
	return p, nil
}

func checkInput(in pipeline.Format) error {
	if err := in.Validate(); err != nil {
		return fmt.Errorf("isp: input: %w", err)
	}
	bad := func(why string) error {
		return fmt.Errorf("%w: input %s: %s; it takes plain %s of even width in host memory",
			ErrUnsupported, in, why, pipeline.RGGB10)
	}
	switch {
	case in.Pixel != pipeline.RGGB10:
		return bad("not this Bayer format")
	case in.Width%2 != 0:
		return bad("odd width")
	case in.Memory != pipeline.MemoryHost:
		return bad("the CPU cannot read it")
	case in.PacketPitch != 0 || in.HeaderGap != 0:
		return bad("packet-ready")
	}
	return nil
}

func newOutput(in, f pipeline.Format) (output, error) {
	if err := f.Validate(); err != nil {
		return output{}, fmt.Errorf("isp: %w", err)
	}
	bad := func(why string) error {
		return fmt.Errorf("%w: cannot make %s from %s %dx%d: %s; it makes plain %s %s and %s %s, of %dx%d or %dx%d",
			ErrUnsupported, f, in.Pixel, in.Width, in.Height, why, pipeline.UYVY, pipeline.BT709Limited,
			pipeline.I420, pipeline.BT601Full, in.Width, in.Height, in.Width/2, in.Height/2)
	}
	o := output{format: f}
	switch {
	case f.Width == in.Width && f.Height == in.Height:
	case 2*f.Width == in.Width && 2*f.Height == in.Height:
		o.half = true
	default:
		return o, bad("neither the input's size nor half of it")
	}
	switch {
	case f.Pixel != pipeline.UYVY && f.Pixel != pipeline.I420:
		return o, bad("unknown layout")
	case f.Pixel == pipeline.UYVY && f.Color != pipeline.BT709Limited,
		f.Pixel == pipeline.I420 && f.Color != pipeline.BT601Full:
		return o, bad("other colorimetry")
	case f.Memory == pipeline.MemoryDevice:
		return o, bad("the CPU cannot write it")
	case f.PacketPitch != 0 || f.HeaderGap != 0:
		return o, bad("packet-ready")
	}
	return o, nil
}

// check says whether the frames are those of the plan.
func (p *plan) check(in *pipeline.Frame, outs []*pipeline.Frame) error {
	if p == nil {
		return fmt.Errorf("%w: no formats were planned", ErrMismatch)
	}
	if len(outs) != len(p.outs) {
		return fmt.Errorf("%w: %d outputs, planned %d", ErrMismatch, len(outs), len(p.outs))
	}
	if err := sameFormat(in, p.in); err != nil {
		return fmt.Errorf("%w: input %w", ErrMismatch, err)
	}
	for i, out := range outs {
		if out == nil {
			continue
		}
		if err := sameFormat(out, p.outs[i].format); err != nil {
			return fmt.Errorf("%w: output %d %w", ErrMismatch, i, err)
		}
	}
	return nil
}

// sameFormat compares all that matters to the bytes; the frame rate does not.
func sameFormat(f *pipeline.Frame, planned pipeline.Format) error {
	planned.Rate = f.Format.Rate
	if f.Format != planned {
		return fmt.Errorf("is %s, planned %s", f.Format, planned)
	}
	if len(f.Bytes) < planned.Size() {
		return fmt.Errorf("of %s has %d bytes, needs %d", planned, len(f.Bytes), planned.Size())
	}
	return nil
}
