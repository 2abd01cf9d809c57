// SPDX-License-Identifier: Apache-2.0

// Package tensor describes the inputs and outputs of a model: their types and shapes, their data, and where in the frame
// the pixels of an input come from.
package tensor

import (
	"fmt"
	"math"
	"unsafe"
)

// A Type is the type of a tensor's elements. The numbers are those of ONNX (onnx.proto, TensorProto.DataType), which ONNX
// Runtime has taken over (ONNXTensorElementDataType).
type Type int

// Types whose elements have a fixed size.
const (
	Float32  Type = 1
	Uint8    Type = 2
	Int8     Type = 3
	Uint16   Type = 4
	Int16    Type = 5
	Int32    Type = 6
	Int64    Type = 7
	Bool     Type = 9
	Float16  Type = 10
	Float64  Type = 11
	Uint32   Type = 12
	Uint64   Type = 13
	BFloat16 Type = 16
)

var types = map[Type]struct {
	name string
	size int
}{
	Float32: {"float32", 4}, Uint8: {"uint8", 1}, Int8: {"int8", 1}, Uint16: {"uint16", 2}, Int16: {"int16", 2}, Int32: {"int32", 4},
	Int64: {"int64", 8}, Bool: {"bool", 1}, Float16: {"float16", 2}, Float64: {"float64", 8}, Uint32: {"uint32", 4}, Uint64: {"uint64", 8},
	BFloat16: {"bfloat16", 2},
}

// Size returns the size of an element in bytes; 0: unknown.
func (t Type) Size() int { return types[t].size }

func (t Type) String() string {
	if n := types[t].name; n != "" {
		return n
	}
	return fmt.Sprintf("type %d of ONNX", int(t))
}

// Dynamic is a dimension that the model leaves open.
const Dynamic = -1

// Info describes an input or output of a model.
type Info struct {
	Name  string
	Type  Type
	Shape []int64 // Dynamic: any size
}

func (i Info) String() string {
	text := i.Type.String() + " ["
	for n, d := range i.Shape {
		if n > 0 {
			text += " "
		}
		if d == Dynamic {
			text += "?"
		} else {
			text += fmt.Sprint(d)
		}
	}
	return fmt.Sprintf("%q %s]", i.Name, text)
}

// Bytes returns the size of the data in bytes. It returns an error if the shape is dynamic or negative, the type has no
// fixed size, or the size is above most.
func (i Info) Bytes(most int64) (int64, error) {
	size := int64(i.Type.Size())
	if size == 0 {
		return 0, fmt.Errorf("%s: elements of this type are not supported", i)
	}
	empty := false
	for _, d := range i.Shape {
		switch {
		case d < 0:
			return 0, fmt.Errorf("%s: the shape is not fixed", i)
		case d == 0:
			empty = true
		case d > most || size > most/d:
			return 0, fmt.Errorf("%s: more than %d bytes", i, most)
		default:
			size *= d
		}
	}
	if empty {
		return 0, nil
	}
	return size, nil
}

// A Tensor has the data of an input or output, whose shape is fixed.
type Tensor struct {
	Info
	Data []byte // in the byte order of the machine, aligned to the elements
}

// Float32s returns the elements of a Float32.
func (t *Tensor) Float32s() []float32 { return elements[float32](t.Data) }

// Int64s returns the elements of an Int64.
func (t *Tensor) Int64s() []int64 { return elements[int64](t.Data) }

func elements[E any](data []byte) []E {
	var e E
	if len(data) == 0 {
		return nil
	}
	return unsafe.Slice((*E)(unsafe.Pointer(&data[0])), len(data)/int(unsafe.Sizeof(e)))
}

// A Placement says where in the frame the pixels of a tensor are. The point (x, y) of the tensor, in its pixels, with (0, 0)
// the upper left corner of the first one, is the point (X + x·ScaleX, Y + y·ScaleY) of the frame.
type Placement struct {
	X, Y           float64
	ScaleX, ScaleY float64
	Width, Height  int // of the tensor in pixels
}

// Frame returns a point of the tensor in pixels of the frame.
func (p Placement) Frame(x, y float64) (float64, float64) {
	return p.X + x*p.ScaleX, p.Y + y*p.ScaleY
}

// Finite reports whether all of the numbers are neither NaN nor infinite.
func Finite(numbers ...float64) bool {
	for _, n := range numbers {
		if math.IsNaN(n) || math.IsInf(n, 0) {
			return false
		}
	}
	return true
}
