// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
)

// args mirrors Args of kernels/args.cu, field by field.
type args struct {
	in, out           uintptr
	samples, searched uintptr
	colors            uintptr
	tone              uintptr
	shading, rows     uintptr
	defects           uintptr
	statistics        uintptr
	reciprocal        uint64

	width, height, stride  int32
	there                  int32
	begin, end             int32
	wide                   int32
	pitch                  int32
	shadingRows            int32
	mask                   int32
	black, light, m, n     [4]int32
	threshold, defectCount int32
	matrix                 [9]int32
	sharpen                int32

	outWidth, outHeight, outStride int32
	lineBytes, payload, packets    int32
	packetPitch, headerGap         int32
	vector                         int32
	stripRows                      int32
	luma, cb, cr, rgb              conversion
	half                           half
}

// half mirrors Half of kernels/args.cu.
type half struct {
	out            uintptr
	stride, height int32
	luma, cb, cr   conversion
}

// conversion mirrors Conversion of kernels/args.cu.
type conversion struct {
	c             [3]int32
	offset, shift int32
}

func newConversion(c isp.Conversion) conversion { return conversion{c.C, c.Offset, c.Shift} }

// toTop returns the conversion whose values, of 8 bits, stand in the highest bits of the sums.
func (c conversion) toTop() conversion {
	by := 24 - c.shift
	for i := range c.c {
		c.c[i] <<= by
	}
	return conversion{c.c, c.offset << by, 24}
}

// bySite flattens values indexed by y and x modulo 2.
func bySite[T, U uint16 | int | int32](v [2][2]T) [4]U {
	return [4]U{U(v[0][0]), U(v[0][1]), U(v[1][0]), U(v[1][1])}
}

// newArgs returns the arguments that are the same for all frames.
func newArgs(r *isp.Recipe) args {
	a := args{
		width: int32(r.In.Width), height: int32(r.In.Height), stride: int32(r.In.Stride), pitch: int32(pitch(r.In.Width)),
		mask:  1<<r.Samples.Bits - 1,
		black: bySite[uint16, int32](r.Black), light: bySite[int, int32](r.Light),
		threshold: int32(r.Threshold), defectCount: int32(len(r.Defects)), sharpen: r.Sharpen,
	}
	if r.Matrix != nil {
		for i, m := range r.Matrix {
			a.matrix[i] = int32(m)
		}
	}
	if r.Shading != nil {
		a.shadingRows = int32(r.Shading.Rows)
	}
	return a
}

// pitch returns the length in samples of a line of width samples in device memory, where eight samples are read at a
// time.
func pitch(width int) int { return (width + 7) &^ 7 }

// setInput sets the address of the sensor's frame, and the alignment of its lines.
func (a *args) setInput(r *isp.Recipe, at uintptr) {
	a.in, a.wide = at, aligned(at|uintptr(r.In.Stride))
}

// aligned returns the largest of 16, 8, 4 and 1 that divides several addresses and strides; bits is their bitwise OR.
func aligned(bits uintptr) int32 {
	switch {
	case bits%16 == 0:
		return 16
	case bits%8 == 0:
		return 8
	case bits%4 == 0:
		return 4
	}
	return 1
}

// setOutput sets the address and the parameters of a picture.
func (a *args) setOutput(o *isp.RecipeOutput, at uintptr) {
	f := o.Format
	a.out, a.outWidth, a.outHeight, a.outStride = at, int32(f.Width), int32(f.Height), int32(f.Stride)
	a.lineBytes, a.payload, a.packets = int32(o.LineBytes), int32(o.Payload), int32(o.LineBytes/o.Payload)
	a.packetPitch, a.headerGap, a.reciprocal = int32(f.PacketPitch), int32(f.HeaderGap), reciprocal(o.Payload)
	a.luma, a.cb, a.cr, a.rgb = newConversion(o.Luma), newConversion(o.Cb), newConversion(o.Cr), newConversion(o.RGB)
	if f.Pixel != pipeline.UYVP {
		a.luma, a.cb, a.cr = a.luma.toTop(), a.cb.toTop(), a.cr.toTop()
	}
	a.vector = vector(o, at)
}

// canBePaired reports whether the kernel for two outputs can make them, at the address that is set and at another one.
func (a *args) canBePaired(r *isp.Recipe, full, half *isp.RecipeOutput, at uintptr) bool {
	return a.canBeFast(r) && a.canBeWritten(full) && vector(half, at) >= 4
}

// setHalf sets the address and the parameters of the picture that is made with another.
func (a *args) setHalf(o *isp.RecipeOutput, at uintptr) {
	a.half = half{
		out: at, stride: int32(o.Format.Stride), height: int32(o.Format.Height),
		luma: newConversion(o.Luma).toTop(), cb: newConversion(o.Cb).toTop(), cr: newConversion(o.Cr).toTop(),
	}
}

// canBeFast reports whether lines of the sensor's frame can be read without branches: FAST of kernels/lines.cu.
func (a *args) canBeFast(r *isp.Recipe) bool {
	wide := int32(16)
	switch {
	case needsPlane(r):
		wide = 1
	case r.Samples.Packed:
		wide = 4
	}
	return a.wide >= wide && a.width%lane == 0 && a.height >= 8
}

// canBeWritten reports whether the kernels of canBeFast can also write an output: the lanes themselves, or for UYVY, whose
// packets have headers, warps four bytes at a time. Other formats are staged in any case.
func (a *args) canBeWritten(o *isp.RecipeOutput) bool {
	if o.Format.Size() >= 1<<32 { // places in it have 32 bits
		return false
	}
	switch o.Format.Pixel {
	case pipeline.UYVY:
		return a.vector >= 4
	case pipeline.NV12, pipeline.Grey:
		return a.vector >= 8 && a.outWidth%lane == 0
	case pipeline.I420: // four bytes of Cb and Cr
		return a.vector >= 4 && a.out%8 == 0 && a.outWidth%lane == 0
	}
	return true
}

// lane is the number of pixels of a line that a lane makes: LANE of kernels/lines.cu.
const lane = 8

// reciprocal returns 2^40 / n, rounded up. Multiplying by it and shifting right by 40 divides numbers less than 2^17,
// such as every position in a line, by n less than 2^17: rounding adds less than 2^-23 to the quotient, which is at
// least 1/n below the next integer.
func reciprocal(n int) uint64 { return (1<<40 + uint64(n) - 1) / uint64(n) }

// vector returns how many bytes, 16, 8, 4 or 1, may be written at a time, so that they are aligned and in one line and one
// packet.
func vector(o *isp.RecipeOutput, at uintptr) int32 {
	f := o.Format
	together := at
	switch {
	case f.PacketPitch > 0:
		together |= uintptr(f.PacketPitch) | uintptr(f.HeaderGap) | uintptr(o.Payload)
	case f.Pixel == pipeline.I420:
		together |= uintptr(f.Stride) | uintptr(f.Stride/2) | uintptr(f.Stride*f.Height) | uintptr(f.Stride/2*(f.Height/2))
	default:
		together |= uintptr(f.Stride)
	}
	return aligned(together)
}
