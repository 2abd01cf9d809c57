// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
)

// The parts of the source, in order.
var (
	//go:embed kernels/args.cu
	argsSource string
	//go:embed kernels/samples.cu
	samplesSource string
	//go:embed kernels/defects.cu
	defectsSource string
	//go:embed kernels/statistics.cu
	statisticsSource string
	//go:embed kernels/lines.cu
	linesSource string
	//go:embed kernels/colors.cu
	colorsSource string
	//go:embed kernels/output.cu
	outputSource string
	//go:embed kernels/picture.cu
	pictureSource string
)

// source returns the complete source, with line directives by which the compiler's errors name the part and its line.
func source() string {
	var b strings.Builder
	for _, part := range []struct{ name, text string }{
		{"args.cu", argsSource},
		{"samples.cu", samplesSource},
		{"defects.cu", defectsSource},
		{"statistics.cu", statisticsSource},
		{"lines.cu", linesSource},
		{"colors.cu", colorsSource},
		{"output.cu", outputSource},
		{"picture.cu", pictureSource},
	} {
		fmt.Fprintf(&b, "#line 1 %q\n%s\n", part.name, part.text)
	}
	return b.String()
}

// needsColors reports whether the colours of the pictures must be written to memory: sharpening needs neighbours, and
// turned pictures are made of lines of colours that are turned in memory.
func needsColors(r *isp.Recipe) bool { return r.Sharpen > 0 || r.Turn != isp.Turn{} }

// turnOption returns the compiler option TURN of kernels/args.cu, or nothing.
func turnOption(t isp.Turn) []string {
	if t == (isp.Turn{}) {
		return nil
	}
	return []string{fmt.Sprintf("-DTURN=%d", t.Bits())}
}

// needsPlane reports whether samples must be written to memory for the repair of defects, which needs neighbouring
// lines.
func needsPlane(r *isp.Recipe) bool { return len(r.Defects) > 0 || r.Threshold > 0 }

// options returns the compiler options common to all kernels of a recipe.
func options(r *isp.Recipe) []string {
	packed := 0
	if r.Samples.Packed {
		packed = 1
	}
	list := []string{fmt.Sprintf("-DMOSAIC=%d", r.Samples.Mosaic), fmt.Sprintf("-DBITS=%d", r.Samples.Bits), fmt.Sprintf("-DPACKED=%d", packed)}
	for _, o := range []struct {
		is   bool
		name string
	}{
		{r.Demosaic == isp.Malvar, "MALVAR"},
		{r.Matrix != nil, "MATRIX"},
		{r.Shading != nil, "SHADING"},
		{needsPlane(r), "PLANE"},
	} {
		if o.is {
			list = append(list, "-D"+o.name)
		}
	}
	return append(list, turnOption(r.Turn)...)
}

// samplesPart is the compiler option that selects the part of the program with the kernels for samples. colorsPart and
// picturePart return the options for the other parts. Each part is compiled separately.
const samplesPart = "-DSAMPLES"

func colorsPart(size int) string { return fmt.Sprintf("-DKERNEL=COLORS(%d)", size) }

func picturePart(r *isp.Recipe, o *isp.RecipeOutput) string {
	size := o.Size
	if needsColors(r) {
		size = 0 // the colours of its size are in memory
	}
	return fmt.Sprintf("-DKERNEL=PICTURE(%d, %s, %t)", size, formatName(o.Format.Pixel), needsColors(r))
}

func pairPart(o *isp.RecipeOutput) string {
	return fmt.Sprintf("-DKERNEL=PAIR(%s)", formatName(o.Format.Pixel))
}

// pairOf returns the indices of two outputs that one kernel makes, if the frames allow it: a picture of 8 bits at full size,
// and one of I420 at half of it.
func pairOf(r *isp.Recipe) (full, half int, ok bool) {
	direct := []pipeline.PixelFormat{pipeline.UYVY, pipeline.NV12, pipeline.I420, pipeline.Grey}
	full = slices.IndexFunc(r.Outputs, func(o isp.RecipeOutput) bool { return o.Size == 0 && slices.Contains(direct, o.Format.Pixel) })
	half = slices.IndexFunc(r.Outputs, func(o isp.RecipeOutput) bool { return o.Size == 1 && o.Format.Pixel == pipeline.I420 })
	return full, half, full >= 0 && half >= 0 && !needsColors(r) && r.In.Width%16 == 0 && r.In.Height%4 == 0
}

// parts returns the compiler options for the parts that a recipe needs, each once.
func parts(r *isp.Recipe, observe bool) (list []string) {
	if needsPlane(r) || observe {
		list = append(list, samplesPart)
	}
	for i := range r.Outputs {
		o := &r.Outputs[i]
		list = append(list, picturePart(r, o))
		if needsColors(r) {
			list = append(list, colorsPart(o.Size))
		}
	}
	if full, _, ok := pairOf(r); ok {
		list = append(list, pairPart(&r.Outputs[full]))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// formatName returns the name of the format in kernels/picture.cu; isp.NewRecipe has refused all others.
func formatName(p pipeline.PixelFormat) string {
	return map[pipeline.PixelFormat]string{
		pipeline.UYVY: "UYVY", pipeline.UYVP: "UYVP", pipeline.RGB24: "RGB24", pipeline.Grey: "GREY",
		pipeline.I420: "I420", pipeline.NV12: "NV12",
	}[p]
}

// sizes is the number of sizes: full, half and quarter.
const sizes = 3

// A program contains the kernels of a recipe, compiled for the device.
type program struct {
	modules    map[string]*cudahost.Module // by part
	black      *cudahost.Kernel
	known      *cudahost.Kernel
	found      *cudahost.Kernel
	statistics *cudahost.Kernel
	colors     [sizes]*cudahost.Kernel // before sharpening and turning; nil if not needed
	pictures   []*cudahost.Kernel
	pair       *cudahost.Kernel // nil if there is none (pairOf)
}

// newProgram compiles the parts of a recipe's program concurrently, and loads them.
func newProgram(d *cudahost.Device, c *cudahost.Compiler, r *isp.Recipe, observe bool) (*program, error) {
	list := parts(r, observe)
	codes, errs := make([][]byte, len(list)), make([]error, len(list))
	var all sync.WaitGroup
	for i, part := range list {
		all.Go(func() { codes[i], _, errs[i] = c.Compile("isp.cu", source(), append(options(r), part)...) })
	}
	all.Wait()
	err := cmp.Or(errs...) // the others would report the same
	p := &program{modules: map[string]*cudahost.Module{}}
	for i, part := range list {
		if err == nil {
			p.modules[part], err = d.Load(codes[i])
		}
	}
	if err == nil {
		err = p.find(r, observe)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("isp on CUDA: %w", err), p.Close())
	}
	return p, nil
}

func (p *program) find(r *isp.Recipe, observe bool) (err error) {
	get := func(part, name string) *cudahost.Kernel {
		k, e := p.modules[part].Kernel(name)
		err = errors.Join(err, e)
		return k
	}
	if observe {
		p.statistics = get(samplesPart, "statistics")
	}
	if needsPlane(r) {
		p.black, p.known, p.found = get(samplesPart, "black"), get(samplesPart, "known"), get(samplesPart, "found")
	}
	for i := range r.Outputs {
		o := &r.Outputs[i]
		p.pictures = append(p.pictures, get(picturePart(r, o), "picture"))
		if needsColors(r) && p.colors[o.Size] == nil {
			p.colors[o.Size] = get(colorsPart(o.Size), "colors")
		}
	}
	if full, _, ok := pairOf(r); ok {
		p.pair = get(pairPart(&r.Outputs[full]), "pair")
	}
	return err
}

// Close unloads the code, which must not be running.
func (p *program) Close() error {
	var errs []error
	for _, m := range p.modules {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}
