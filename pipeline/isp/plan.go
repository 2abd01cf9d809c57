// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"fmt"

	"github.com/tegracast/tegracast/pipeline"
)

// sizes is the number of possible scales: 1/1, 1/2, 1/4, by index.
const sizes = 3

// An output is one wanted format and the way its lines are written.
type output struct {
	format  pipeline.Format
	size    int // index of the scale
	convert conversion
	payload int // bytes of a line between two header gaps; the whole line in plain memory
	count   int // number of payloads per line
}

// A plan contains what Process needs to know about the formats. Except for the gains it does not change.
type plan struct {
	in        pipeline.Format
	samples   pipeline.Samples
	line      int // bytes of a sensor line
	outs      []output
	wanted    [sizes]bool
	levels    levels
	defects   map[int][]defect
	step      int    // distance to the next sample of the same colour
	hot       uint16 // threshold of the search for defects, in 1/65536; 0: none
	shading   *shading
	method    Demosaic
	matrix    *[9]int16 // nil means identity
	sharpen   int32     // in 1/64; 0: off
	turn      Turn
	observe   bool // statistics are computed
	direct    bool // no step is between black level and white balance
	colors    bool // the only output is made the short way of columns.go
	bandLines int
	weaves    [2]*weave // for even and odd lines
}

func newPlan(c Config, t *tone, gains uint64, in pipeline.Format, want []pipeline.Format) (*plan, error) {
	if err := c.CheckInput(in); err != nil {
		return nil, err
	}
	p := &plan{
		in: in, line: in.Pixel.LineBytes(in.Width), step: 2, turn: c.Turn,
		method: c.Demosaic, sharpen: int32(c.Sharpen*64 + 0.5), observe: c.Observe != nil || c.Results != "",
	}
	p.samples, _ = in.Pixel.Samples()
	for i, f := range want {
		o, err := newOutput(in, f, c.Turn)
		if err != nil {
			return nil, fmt.Errorf("output %d: %w", i, err)
		}
		p.outs = append(p.outs, o)
		p.wanted[o.size] = true
	}
	p.levels = newLevels(c, gains, p.samples)
	if p.samples.Mosaic == pipeline.Mono {
		p.step = 1
	} else {
		p.matrix = newMatrix(c.Matrix)
	}
	p.defects = newDefects(c.Defects.Pixels, in.Width, in.Height, p.step)
	p.hot = uint16(min(c.Defects.Threshold<<p.levels.shift, 1<<16-1))
	p.shading = newShading(c.Shading, &p.levels, in.Width, in.Height)
	p.direct = len(p.defects) == 0 && p.hot == 0 && p.shading == nil && !p.observe
	p.bandLines = bandLines
	if p.colors = p.short(t); p.colors {
		p.bandLines = shortLines
	}
	for y := range p.weaves {
		p.weaves[y] = newWeave(p.levels.phase(y))
	}
	return p, nil
}

func newMatrix(m [9]float64) *[9]int16 {
	if m == ([9]float64{}) || m == [9]float64{0: 1, 4: 1, 8: 1} {
		return nil
	}
	var fixedPoint [9]int16
	for i, v := range m {
		fixedPoint[i] = int16(min(fixed(v), 1<<15-1))
	}
	return &fixedPoint
}

// CheckInput returns the error that Plan would return for this input format, or nil. Unlike Stage.Plan, it accepts
// write-combined memory, which the GPU can use.
func (c Config) CheckInput(in pipeline.Format) error {
	if err := in.Validate(); err != nil {
		return fmt.Errorf("isp: input: %w", err)
	}
	bad := func(why string) error {
		return fmt.Errorf("%w: input %s: %s; it takes samples of a sensor in host memory", ErrUnsupported, in, why)
	}
	s, ok := in.Pixel.Samples()
	switch {
	case !ok:
		return bad("not a sensor's format")
	case in.Memory == pipeline.MemoryDevice:
		return bad("no processor reads it by the host's address")
	case in.PacketPitch != 0 || in.HeaderGap != 0:
		return bad("packet-ready")
	}
	return c.checkBlack(s.Bits)
}

func newOutput(in, f pipeline.Format, turn Turn) (output, error) {
	if err := f.Validate(); err != nil {
		return output{}, fmt.Errorf("isp: %w", err)
	}
	width, height := turn.Size(in.Width, in.Height)
	bad := func(why string) error {
		return fmt.Errorf("%w: cannot make %s from %s %dx%d: %s; it makes %s, %s, %s, %s, %s and %s of %dx%d, %dx%d or %dx%d",
			ErrUnsupported, f, in.Pixel, in.Width, in.Height, why,
			pipeline.UYVY, pipeline.UYVP, pipeline.RGB24, pipeline.I420, pipeline.NV12, pipeline.Grey,
			width, height, width/2, height/2, width/4, height/4)
	}
	o := output{format: f, size: -1}
	for i := range sizes {
		if f.Width == width>>i && f.Height == height>>i {
			o.size = i
			break
		}
	}
	bits := 8
	switch f.Pixel {
	case pipeline.UYVP:
		bits = 10
	case pipeline.UYVY, pipeline.RGB24, pipeline.I420, pipeline.NV12, pipeline.Grey:
	default:
		return o, bad("unknown layout")
	}
	switch {
	case o.size < 0:
		return o, bad("neither the size of the whole picture nor a half or a quarter of it")
	case f.Color == pipeline.ColorNone || f.Color > pipeline.BT601Limited:
		return o, bad("no colorimetry of pictures")
	case f.Memory == pipeline.MemoryDevice:
		return o, bad("the CPU cannot write it")
	}
	o.convert = newConversion(f.Color, bits)
	o.payload = f.Pixel.LineBytes(f.Width)
	if f.PacketPitch > 0 {
		o.payload = f.PacketPitch - f.HeaderGap
	}
	o.count = f.Pixel.LineBytes(f.Width) / o.payload
	return o, nil
}

// check returns an error unless the frames match the plan.
func (p *plan) check(in *pipeline.Frame, outs []*pipeline.Frame) error {
	if p == nil {
		return fmt.Errorf("%w: no formats were planned", ErrMismatch)
	}
	if len(outs) != len(p.outs) {
		return fmt.Errorf("%w: %d outputs, planned %d", ErrMismatch, len(outs), len(p.outs))
	}
	if err := in.CheckFormat(p.in); err != nil {
		return fmt.Errorf("%w: input %w", ErrMismatch, err)
	}
	for i, out := range outs {
		if out == nil {
			continue
		}
		if err := out.CheckFormat(p.outs[i].format); err != nil {
			return fmt.Errorf("%w: output %d %w", ErrMismatch, i, err)
		}
	}
	return nil
}
