// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"cmp"
	"slices"

	"github.com/tegracast/tegracast/pipeline"
)

// A Recipe contains the values and tables of docs/isp.md for a configuration and formats, for implementations on other
// processors. It must not be changed.
type Recipe struct {
	In      pipeline.Format
	Samples pipeline.Samples
	Outputs []RecipeOutput

	Black     [2][2]uint16     // by y and x modulo 2; §2
	Light     [2][2]int        // by y and x modulo 2: value of a saturated sample above its black level; §2
	White     [3]int           // value of a saturated sample of red, green (the mean of both channels) and blue
	Defects   []RecipeDefect   // by line, then by column; §3
	Threshold uint16           // t of §3: the threshold of the search for defects; 0: no search
	Shading   *RecipeShading   // nil if there is none; §4
	Demosaic  Demosaic         // §6
	Matrix    *[9]int16        // nil means identity; §7
	Tone      *[1 << 14]uint16 // §8
	Sharpen   int32            // in 1/64; 0 if off; §9
	Turn      Turn             // §9a

	plan *plan
}

// A RecipeOutput is one of the wanted formats.
type RecipeOutput struct {
	Format    pipeline.Format
	Size      int        // 0 is the sensor's size, 1 half and 2 a quarter of it
	Luma      Conversion // §10
	Cb, Cr    Conversion // for sums with weights that add up to four
	RGB       Conversion // applied to R', G' and B' separately; only C[0] is used
	LineBytes int        // of the first plane
	Payload   int        // contiguous bytes of a line: the whole line or, in packet-ready memory, its part between two header gaps
}

// A Conversion is (C[0]·R' + C[1]·G' + C[2]·B' + Offset) >> Shift.
type Conversion struct {
	C      [3]int32
	Offset int32
	Shift  int32
}

// A RecipeDefect is a known defect. Bit i of Usable is set if pair i of §3 may repair it.
type RecipeDefect struct {
	X, Y   int
	Usable uint8
}

// A RecipeShading contains the gains of §4, interpolated to every column: for lines y of the frame, Gains[y%2][j] holds
// the values n(j) of the grid's line j.
type RecipeShading struct {
	Rows  int
	Gains [2][][]uint16 // n(j), Width each
	AtY   []uint16      // for each line of the frame: j<<8 | h
}

// NewRecipe returns the recipe for a valid configuration. It refuses what Stage.Plan refuses, except write-combined
// input, with the same errors.
func NewRecipe(c Config, in pipeline.Format, want []pipeline.Format) (*Recipe, error) {
	tone := newTone(c)
	p, err := newPlan(c, tone, packGains(c.Gains), in, want)
	if err != nil {
		return nil, err
	}
	r := &Recipe{
		In: in, Samples: p.samples, Threshold: p.hot, Demosaic: p.method, Matrix: p.matrix, Sharpen: p.sharpen, Turn: p.turn,
		Tone: &tone.table, White: p.levels.whites(), plan: p,
	}
	for y := range r.Black {
		for x, channel := range p.levels.channels(y) {
			r.Black[y][x], r.Light[y][x] = p.levels.black[channel], p.levels.light[channel]
		}
	}
	for y, line := range p.defects {
		for _, d := range line {
			r.Defects = append(r.Defects, RecipeDefect{d.x, y, d.usable})
		}
	}
	slices.SortFunc(r.Defects, func(a, b RecipeDefect) int { return cmp.Or(a.Y-b.Y, a.X-b.X) })
	if s := p.shading; s != nil {
		r.Shading = &RecipeShading{Rows: len(s.lines[0]), AtY: s.atY}
		for parity, lines := range s.lines {
			for _, l := range lines {
				r.Shading.Gains[parity] = append(r.Shading.Gains[parity], l.at(0, in.Width))
			}
		}
	}
	for _, o := range p.outs {
		r.Outputs = append(r.Outputs, o.recipe())
	}
	return r, nil
}

func (o *output) recipe() RecipeOutput {
	first3 := func(c [4]int16) [3]int32 { return [3]int32{int32(c[0]), int32(c[1]), int32(c[2])} }
	luma, chroma, rgb := o.convert.luma, o.convert.chroma, o.convert.rgb
	if rgb == nil {
		rgb = &lumaArgs{c: [4]int16{1}, offset: 8, shift: 4}
	}
	return RecipeOutput{
		Format: o.format, Size: o.size, Payload: o.payload, LineBytes: o.payload * o.count,
		Luma: Conversion{first3(luma.c), luma.offset, luma.shift},
		Cb:   Conversion{first3(chroma.cb), chroma.offset, chroma.shift},
		Cr:   Conversion{first3(chroma.cr), chroma.offset, chroma.shift},
		RGB:  Conversion{first3(rgb.c), rgb.offset, rgb.shift},
	}
}

// Factors returns m and n of §5 for white balance gains, by y and x modulo 2. The gains must be valid.
func (r *Recipe) Factors(g Gains) (m, n [2][2]int) {
	levels := r.plan.levels
	levels.setGains(packGains(g))
	for y := range m {
		for x, channel := range levels.channels(y) {
			m[y][x], n[y][x] = int(levels.m[channel]), int(levels.n[channel])
		}
	}
	return m, n
}

// Check returns an error that wraps ErrMismatch unless the frames match the recipe. If r is nil, no frames do.
func (r *Recipe) Check(in *pipeline.Frame, outs []*pipeline.Frame) error {
	if r == nil {
		return (*plan)(nil).check(in, outs)
	}
	return r.plan.check(in, outs)
}
