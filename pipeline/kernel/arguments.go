// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"unsafe"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
)

// input mirrors Input of prelude.cuh, field by field.
type input struct {
	pixels                uintptr
	width, height, stride int32
	format, group, bits   int32
	sequence              uint64
}

// output mirrors Output of prelude.cuh.
type output struct {
	pixels                uintptr
	width, height, stride int32
	format                int32
}

// arguments holds the arguments of a launch of the kernel.
type arguments struct {
	in         input
	out        output
	results    uintptr
	parameters []float32
	state      uintptr
}

func (a *arguments) set(in *pipeline.Frame, at, out, state uintptr) {
	f := in.Format
	format, _ := pixelNumber(f.Pixel)
	samples, _ := f.Pixel.Samples()
	bits := int32(samples.Bits)
	if f.Pixel == pipeline.Grey {
		bits = 0
	}
	w, h, stride := int32(f.Width), int32(f.Height), int32(f.Stride)
	a.in = input{at, w, h, stride, format, int32(f.Pixel.Group().Pixels), bits, in.Sequence}
	a.out = output{out, w, h, stride, format}
	a.state = state
}

// pointers returns pointers to the four parameters of the entry point, for a launch.
func (a *arguments) pointers() []unsafe.Pointer {
	second := unsafe.Pointer(&a.out)
	if a.results != 0 {
		second = unsafe.Pointer(&a.results)
	}
	return []unsafe.Pointer{unsafe.Pointer(&a.in), second, unsafe.Pointer(&a.parameters[0]), unsafe.Pointer(&a.state)}
}

// The size of a block in threads. A thread processes one group of pixels.
const (
	threadsX = 32
	threadsY = 8
)

// grid returns a grid with a thread for every group of pixels of a frame.
func grid(f pipeline.Format) cudahost.Dim {
	group := f.Pixel.Group().Pixels
	over := func(a, b int) int { return (a + b - 1) / b }
	return cudahost.Dim{X: over(over(f.Width, group), threadsX), Y: over(f.Height, threadsY)}
}
