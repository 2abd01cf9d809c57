// SPDX-License-Identifier: Apache-2.0

package preprocess

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/tegracast/tegracast/cudahost"
)

//go:embed preprocess.cu
var source string

// args mirrors Args of preprocess.cu, field by field.
type args struct {
	in, out                    uintptr
	stride, plane              int32
	cropX, cropY, cropW, cropH int32
	left, top, width, height   int32
	outWidth, outHeight        int32
	factor                     [3][4]float32
	low, high                  [3]float32
	fill                       [3]float32
}

// A Kernel makes tensors on a GPU, bit by bit those of a Preprocessor. It may be used by one goroutine at a time.
type Kernel struct {
	plan
	module *cudahost.Module
	kernel *cudahost.Kernel
	args   args
}

// NewKernel compiles the kernel for a configuration, and loads it. The caller must close it.
func NewKernel(device *cudahost.Device, compiler *cudahost.Compiler, c Config) (*Kernel, error) {
	plan, err := newPlan(c)
	if err != nil {
		return nil, err
	}
	k := &Kernel{plan: plan, args: plan.args()}
	code, _, err := compiler.Compile("preprocess.cu", source, options(&c)...)
	if err == nil {
		k.module, err = device.Load(code)
	}
	if err != nil {
		return nil, refuse("on CUDA: %w", err)
	}
	if k.kernel, err = k.module.Kernel("preprocess"); err != nil {
		return nil, errors.Join(refuse("on CUDA: %w", err), k.module.Close())
	}
	return k, nil
}

// options returns the compiler's options.
func options(c *Config) []string {
	flag := map[bool]int{true: 1}
	return []string{
		"--fmad=false", fmt.Sprintf("-DFORMAT=%d", slices.Index(formats, c.Format.Pixel)), fmt.Sprintf("-DTYPE=%d", c.Type),
		fmt.Sprintf("-DCHANNELS=%d", c.Channels), fmt.Sprintf("-DNHWC=%d", flag[c.NHWC]), fmt.Sprintf("-DREVERSED=%d", flag[c.reversed()]),
	}
}

// args returns the arguments that are the same for all frames.
func (p *plan) args() args {
	f := p.config.Format
	a := args{
		stride: int32(f.Stride), plane: int32(f.Stride * f.Height),
		cropX: int32(p.crop.Min.X), cropY: int32(p.crop.Min.Y), cropW: int32(p.crop.Dx()), cropH: int32(p.crop.Dy()),
		left: int32(p.picture.Min.X), top: int32(p.picture.Min.Y), width: int32(p.picture.Dx()), height: int32(p.picture.Dy()),
		outWidth: int32(p.config.Width), outHeight: int32(p.config.Height), fill: p.fill,
	}
	for c := range a.factor {
		for i := range a.factor[c] {
			a.factor[c][i] = p.colours.factor[c][i][0]
		}
		a.low[c], a.high[c] = p.colours.bounds[c][0][0], p.colours.bounds[c][1][0]
	}
	return a
}

// Enqueue enqueues the making of a tensor. frame is the device's address of Format.Size bytes, into that of the tensor's,
// aligned to its elements. The frame may be changed, and the tensor be read by others than the stream, when the stream's work
// is done (Stream.Fence, Stream.Synchronize).
func (k *Kernel) Enqueue(stream *cudahost.Stream, frame, into uintptr) error {
	const blockX, blockY = 32, 8
	k.args.in, k.args.out = frame, into
	grid := cudahost.Dim{X: (k.config.Width + blockX - 1) / blockX, Y: (k.config.Height + blockY - 1) / blockY}
	return k.kernel.Launch(stream, grid, cudahost.Dim{X: blockX, Y: blockY}, unsafe.Pointer(&k.args))
}

// Close unloads the kernel, which must not be running.
func (k *Kernel) Close() error { return k.module.Close() }
