// SPDX-License-Identifier: Apache-2.0

package infertest

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

// Sub returns a field with a message, or with a text, that has these parts. Numbers of fields are those of onnx.proto.
func Sub[P []byte | string](number protowire.Number, parts ...P) []byte {
	var content []byte
	for _, p := range parts {
		content = append(content, p...)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
}

// Integer returns a field with an integer.
func Integer(number protowire.Number, value int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), uint64(value))
}

// Build returns a model whose graph has these parts.
func Build(parts ...[]byte) []byte {
	return slices.Concat(Integer(1, 8), Sub(7, append([][]byte{Sub(2, "graph")}, parts...)...), Sub(8, Integer(2, 17)))
}

// Fields of a GraphProto.
const (
	FieldNode        = 1
	FieldInitializer = 5
	FieldInput       = 11
	FieldOutput      = 12
)

// Value returns an input or output of a graph. Dimensions are integers or texts.
func Value(field protowire.Number, name string, kind tensor.Type, dims ...any) []byte {
	var shape [][]byte
	for _, d := range dims {
		switch d := d.(type) {
		case int:
			shape = append(shape, Sub(1, Integer(1, int64(d))))
		case string:
			shape = append(shape, Sub(1, Sub(2, d)))
		}
	}
	return Sub(field, Sub(1, name), Sub(2, Sub(1, Integer(1, int64(kind)), Sub(2, shape...))))
}

// Node returns a node of a graph, or of a function.
func Node(field protowire.Number, operator string, inputs, outputs []string, more ...[]byte) []byte {
	var parts [][]byte
	for _, in := range inputs {
		parts = append(parts, Sub(1, in))
	}
	for _, out := range outputs {
		parts = append(parts, Sub(2, out))
	}
	return Sub(field, slices.Concat(parts, [][]byte{Sub(4, operator)}, more)...)
}

// WithInput returns a model whose graph has this input in place of its own, so that it has a fixed shape.
func WithInput(model, input []byte) []byte {
	return replace(model, 7, func(graph []byte) []byte {
		return Sub(7, replace(graph, FieldInput, func([]byte) []byte { return input }))
	})
}

// replace replaces the fields of a message that have a number.
func replace(message []byte, number protowire.Number, by func(content []byte) []byte) (out []byte) {
	for len(message) > 0 {
		n, kind, size := protowire.ConsumeTag(message)
		length := protowire.ConsumeFieldValue(n, kind, message[max(size, 0):])
		if size < 0 || length < 0 {
			return nil
		}
		field := message[:size+length]
		if n == number {
			content, _ := protowire.ConsumeBytes(message[size:])
			field = by(content)
		}
		out, message = append(out, field...), message[size+length:]
	}
	return out
}
