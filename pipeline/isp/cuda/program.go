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

// samplesPart is the compiler option that selects the part of the program with the kernels for samples. colorsPart,
// picturePart and pairPart return the options for the other parts. Each part is compiled separately; fast ones are for memory
// that is aligned (canBeFast, canBeWritten). Few programs need the others.
const samplesPart = "-DSAMPLES"

func colorsPart(size int, fast bool) string {
	return fmt.Sprintf("-DKERNEL=COLORS(%d, %t)", size, fast)
}

func picturePart(r *isp.Recipe, o *isp.RecipeOutput, fast bool) string {
	size, kept := o.Size, needsColors(r)
	if kept {
		size, fast = 0, false // the colours of its size are in memory
	}
	return fmt.Sprintf("-DKERNEL=PICTURE(%d, %s, %t, %t)", size, formatName(o.Format.Pixel), kept, fast)
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

// parts returns the compiler options for the parts that a recipe needs, each once, if frames begin at addresses that are
// multiples of 16.
func parts(r *isp.Recipe, observe bool) (list []string) {
	if needsPlane(r) || observe {
		list = append(list, samplesPart)
	}
	a := newArgs(r)
	a.setInput(r, 0)
	fast := a.canBeFast(r)
	for i := range r.Outputs {
		o := &r.Outputs[i]
		a.setOutput(o, 0)
		list = append(list, picturePart(r, o, fast && a.canBeWritten(o)))
		if needsColors(r) {
			list = append(list, colorsPart(o.Size, fast))
		}
	}
	if full, half, ok := pairOf(r); ok {
		if a.setOutput(&r.Outputs[full], 0); a.canBePaired(r, &r.Outputs[full], &r.Outputs[half], 0) {
			list = append(list, pairPart(&r.Outputs[full]))
		}
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
	compile func(part string) ([]byte, error)
	device  *cudahost.Device
	modules map[string]*cudahost.Module // by part
	kernels map[kernelKey]*cudahost.Kernel
	failed  error // of a part that was compiled for a frame
}

// A kernelKey identifies a kernel of a program. output is the index of an output, or the size of colours.
type kernelKey struct {
	name   string
	output int
	fast   bool
}

// newProgram compiles the parts of a recipe's program concurrently, and loads them.
func newProgram(d *cudahost.Device, c *cudahost.Compiler, r *isp.Recipe, observe bool) (*program, error) {
	p := &program{device: d, modules: map[string]*cudahost.Module{}, kernels: map[kernelKey]*cudahost.Kernel{}}
	p.compile = func(part string) ([]byte, error) {
		code, _, err := c.Compile("isp.cu", source(), append(options(r), part)...)
		return code, err
	}
	list := parts(r, observe)
	codes, errs := make([][]byte, len(list)), make([]error, len(list))
	var all sync.WaitGroup
	for i, part := range list {
		all.Go(func() { codes[i], errs[i] = p.compile(part) })
	}
	all.Wait()
	err := cmp.Or(errs...) // the others would report the same
	for i, part := range list {
		if err == nil {
			p.modules[part], err = d.Load(codes[i])
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("isp on CUDA: %w", err), p.Close())
	}
	return p, nil
}

// kernel returns a kernel of a part, which it compiles if no frame has needed it before: that can take a second. What
// could not be compiled is not tried again.
func (p *program) kernel(key kernelKey, part func() string) (*cudahost.Kernel, error) {
	if k := p.kernels[key]; k != nil {
		return k, nil
	}
	text := part()
	if p.modules[text] == nil && p.failed == nil {
		code, err := p.compile(text)
		if err == nil {
			p.modules[text], err = p.device.Load(code)
		}
		p.failed = err
	}
	if p.modules[text] == nil {
		return nil, fmt.Errorf("isp on CUDA: %w", p.failed)
	}
	k, err := p.modules[text].Kernel(key.name)
	if err == nil {
		p.kernels[key] = k
	}
	return k, err
}

// samples returns a kernel of samplesPart.
func (p *program) samples(name string) (*cudahost.Kernel, error) {
	return p.kernel(kernelKey{name: name}, func() string { return samplesPart })
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
