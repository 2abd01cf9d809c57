// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
)

// The parts of the source, in their order.
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

// source is what the compiler gets; its errors name the part and the line.
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

// needsPlane says whether the samples behind the repair of defects are written to memory: their repair looks around.
func needsPlane(r *isp.Recipe) bool { return len(r.Defects) > 0 || r.Threshold > 0 }

// options choose the kernels of a recipe.
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
	var pictures []string
	colors := [sizes]bool{}
	for i, o := range r.Outputs {
		size := o.Size
		if r.Sharpen > 0 {
			colors[size] = true
			size = 0 // the colours of its size are in memory
		}
		pictures = append(pictures, fmt.Sprintf("PICTURE(%d, %d, %s, %t)", i, size, formatName(o.Format.Pixel), r.Sharpen > 0))
	}
	for size, is := range colors {
		if is {
			pictures = append(pictures, fmt.Sprintf("COLORS(%d)", size))
		}
	}
	return append(list, "-DPICTURES="+strings.Join(pictures, " "))
}

// formatName is the format in kernels/picture.cu; isp.NewRecipe has refused all others.
func formatName(p pipeline.PixelFormat) string {
	return map[pipeline.PixelFormat]string{
		pipeline.UYVY: "UYVY", pipeline.UYVP: "UYVP", pipeline.RGB24: "RGB24", pipeline.Grey: "GREY",
		pipeline.I420: "I420", pipeline.NV12: "NV12",
	}[p]
}

// sizes are full, half and a quarter.
const sizes = 3

// A program has the kernels of a recipe, compiled for the device.
type program struct {
	module     *cudahost.Module
	black      *cudahost.Kernel
	known      *cudahost.Kernel
	found      *cudahost.Kernel
	statistics *cudahost.Kernel
	colors     [sizes]*cudahost.Kernel // before sharpening; nil: not needed
	pictures   []*cudahost.Kernel
}

func newProgram(d *cudahost.Device, c *cudahost.Compiler, r *isp.Recipe) (*program, error) {
	code, _, err := c.Compile("isp.cu", source(), options(r)...)
	if err != nil {
		return nil, fmt.Errorf("isp on CUDA: %w", err)
	}
	p := &program{}
	if p.module, err = d.Load(code); err != nil {
		return nil, fmt.Errorf("isp on CUDA: %w", err)
	}
	if err := p.find(r); err != nil {
		return nil, errors.Join(fmt.Errorf("isp on CUDA: %w", err), p.module.Close())
	}
	return p, nil
}

func (p *program) find(r *isp.Recipe) (err error) {
	get := func(name string) *cudahost.Kernel {
		k, e := p.module.Kernel(name)
		err = errors.Join(err, e)
		return k
	}
	p.statistics = get("statistics")
	if needsPlane(r) {
		p.black, p.known, p.found = get("black"), get("known"), get("found")
	}
	for i, o := range r.Outputs {
		p.pictures = append(p.pictures, get(fmt.Sprintf("picture%d", i)))
		if r.Sharpen > 0 && p.colors[o.Size] == nil {
			p.colors[o.Size] = get(fmt.Sprintf("colors%d", o.Size))
		}
	}
	return err
}
