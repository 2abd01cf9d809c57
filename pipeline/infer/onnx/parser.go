// SPDX-License-Identifier: Apache-2.0

package onnx

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/tegracast/tegracast/pipeline/infer/tensor"
	"github.com/tegracast/tegracast/pipeline/printable"
)

// A parser collects what a file says. Field numbers in its methods are those of onnx.proto.
type parser struct {
	limits Limits
	root   *os.Root // the model's folder
	model  *Model

	parts     int
	bytes     int64               // of tensors in memory
	files     map[string]int64    // sizes of files with weights
	graphs    int                 // at the top
	initial   map[string]bool     // names of the top graph's initialisers
	names     map[string][]string // of dimensions, by the top graph's input
	makers    map[string]string
	main      body
	functions map[operator]*body
}

func newParser(limits Limits, root *os.Root, size int64) *parser {
	return &parser{
		limits: limits, root: root, files: map[string]int64{}, initial: map[string]bool{}, names: map[string][]string{}, makers: map[string]string{},
		main: body{calls: map[operator]int{}}, functions: map[operator]*body{},
		model: &Model{OutputOperators: map[string]string{}, Opsets: map[string]int64{}, Size: size},
	}
}

// count counts a part of the model.
func (p *parser) count() error {
	if p.parts++; p.parts > p.limits.Parts {
		return fmt.Errorf("%w: its nodes, tensors and functions are more than %d", ErrModel, p.limits.Parts)
	}
	return nil
}

// read reads a ModelProto.
func (p *parser) read(m *message) error {
	var name, version string
	err := m.each(func(f field) (err error) {
		switch f.number {
		case 2: // producer_name
			name, err = f.text()
		case 3: // producer_version
			version, err = f.text()
		case 7: // graph
			p.graphs++
			err = errors.Join(f.once(), p.graph(f, &p.main, 1))
		case 8: // opset_import
			err = p.opset(f)
		case 25: // functions
			err = p.function(f)
		}
		return err
	})
	p.model.Producer = printable.Text(strings.TrimSpace(name + " " + version))
	return err
}

// opset reads an OperatorSetIdProto.
func (p *parser) opset(f field) error {
	var domain string
	var version int64
	m, err := f.sub("OperatorSetIdProto")
	if err != nil {
		return err
	}
	err = m.each(func(f field) (err error) {
		switch f.number {
		case 1:
			domain, err = f.text()
		case 2:
			version, err = f.integer()
		}
		return err
	})
	p.model.Opsets[ours(domain)] = version
	return errors.Join(err, p.count())
}

// finish checks what depends on the whole file.
func (p *parser) finish() error {
	switch {
	case p.graphs == 0:
		return fmt.Errorf("%w: it has no graph: it is truncated, or no ONNX model", ErrModel)
	case len(p.model.Opsets) == 0:
		return fmt.Errorf("%w: it does not say which version of ONNX's operators it needs: it is truncated, or older than ONNX 1.0", ErrModel)
	}
	inputs := p.model.Inputs[:0]
	for _, in := range p.model.Inputs {
		if !p.initial[in.Name] {
			inputs = append(inputs, in)
		}
	}
	p.model.Inputs = inputs
	for _, in := range inputs {
		if in.Shape == nil {
			return fmt.Errorf("%w: the shape of its input %q is not known: export it with one", ErrModel, in.Name)
		}
		p.model.Dimensions = append(p.model.Dimensions, p.names[in.Name])
	}
	if len(inputs) == 0 || len(p.model.Outputs) == 0 {
		return fmt.Errorf("%w: it has %d inputs and %d outputs", ErrModel, len(inputs), len(p.model.Outputs))
	}
	for _, out := range p.model.Outputs {
		if maker := p.makers[out.Name]; maker != "" {
			p.model.OutputOperators[out.Name] = maker
		}
	}
	return p.expand()
}

// graph reads a GraphProto into the body that contains it. The model's own has the depth 1.
func (p *parser) graph(f field, b *body, depth int) error {
	if depth > p.limits.Depth {
		return fmt.Errorf("%w: its graphs contain graphs to a depth of more than %d", ErrModel, p.limits.Depth)
	}
	m, err := f.sub("GraphProto")
	if err != nil {
		return err
	}
	top := depth == 1
	return m.each(func(f field) error {
		switch f.number {
		case 1:
			return p.node(f, b, depth)
		case 5:
			return p.initializer(f, p.tensor, top)
		case 15:
			return p.initializer(f, p.sparse, top)
		case 11:
			return p.value(f, top, "input", &p.model.Inputs)
		case 12:
			return p.value(f, top, "output", &p.model.Outputs)
		}
		return nil
	})
}

// initializer reads a tensor of a graph with the function read, which returns its name.
func (p *parser) initializer(f field, read func(field) (string, error), top bool) error {
	name, err := read(f)
	if top {
		p.initial[name] = true
	}
	return err
}

// node reads a NodeProto of a graph at this depth, or of a function (0).
func (p *parser) node(f field, b *body, depth int) error {
	var op operator
	var outputs []string
	m, err := f.sub("NodeProto")
	if err != nil {
		return err
	}
	err = m.each(func(f field) (err error) {
		switch f.number {
		case 2: // output
			name, bad := f.text()
			outputs, err = append(outputs, name), errors.Join(bad, p.count())
		case 4: // op_type
			op.name, err = f.text()
		case 5: // attribute
			err = p.attribute(f, b, depth)
		case 7: // domain
			op.domain, err = f.text()
		case 8: // overload
			op.overload, err = f.text()
		}
		return err
	})
	op.domain = ours(op.domain)
	b.nodes++
	b.calls[op]++
	if depth == 1 && b == &p.main {
		for _, o := range outputs {
			p.makers[o] = op.name
		}
	}
	return errors.Join(err, p.count())
}

// attribute reads an AttributeProto for the tensors and graphs in it.
func (p *parser) attribute(f field, b *body, depth int) error {
	m, err := f.sub("AttributeProto")
	if err != nil {
		return err
	}
	return m.each(func(f field) (err error) {
		switch f.number {
		case 5: // t
			_, err = p.tensor(f)
			err = errors.Join(f.once(), err)
		case 10: // tensors
			_, err = p.tensor(f)
		case 22: // sparse_tensor
			_, err = p.sparse(f)
			err = errors.Join(f.once(), err)
		case 23: // sparse_tensors
			_, err = p.sparse(f)
		case 6: // g
			err = errors.Join(f.once(), p.graph(f, b, depth+1))
		case 11: // graphs
			err = p.graph(f, b, depth+1)
		}
		return err
	})
}

// value reads a ValueInfoProto of the top graph into list. It skips others.
func (p *parser) value(f field, top bool, what string, list *[]tensor.Info) error {
	if !top {
		return nil
	}
	var info declared
	m, err := f.sub("ValueInfoProto")
	if err != nil {
		return err
	}
	err = m.each(func(f field) (err error) {
		switch f.number {
		case 1: // name
			info.Name, err = f.text()
		case 2: // type
			err = errors.Join(f.once(), info.readType(f))
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case !info.isTensor:
		return fmt.Errorf("%w: its %s %q is no tensor", ErrModel, what, info.Name)
	case info.Type == typeString:
		return fmt.Errorf("%w: its %s %q has texts: only numbers are supported", ErrModel, what, info.Name)
	case info.Type.Size() == 0:
		return fmt.Errorf("%w: its %s %q has elements of %s, which are not supported", ErrModel, what, info.Name, info.Type)
	}
	*list = append(*list, info.Info)
	if what == "input" {
		p.names[info.Name] = info.names
	}
	return p.count()
}

// declared is an input or output as the graph declares it.
type declared struct {
	tensor.Info
	isTensor bool
	names    []string // of its dimensions; "": none
}

// readType reads a TypeProto.
func (d *declared) readType(f field) error {
	m, err := f.sub("TypeProto")
	if err != nil {
		return err
	}
	return m.each(func(f field) error {
		switch f.number {
		case 1: // tensor_type
			d.isTensor = true
			return errors.Join(f.once(), d.readTensorType(f))
		case 6: // denotation
			return nil
		default:
			return fmt.Errorf("%w: %q has type %d of a TypeProto, and only tensors (1) are supported", ErrModel, d.Name, f.number)
		}
	})
}

// readTensorType reads a TypeProto.Tensor.
func (d *declared) readTensorType(f field) error {
	m, err := f.sub("TypeProto.Tensor")
	if err != nil {
		return err
	}
	return m.each(func(f field) (err error) {
		switch f.number {
		case 1: // elem_type
			n, bad := f.integer()
			d.Type, err = tensor.Type(n), bad
		case 2: // shape
			err = errors.Join(f.once(), d.readShape(f))
		}
		return err
	})
}

// readShape reads a TensorShapeProto.
func (d *declared) readShape(f field) error {
	d.Shape = []int64{}
	m, err := f.sub("TensorShapeProto")
	if err != nil {
		return err
	}
	return m.each(func(f field) error {
		if f.number != 1 {
			return nil
		}
		size, name := int64(tensor.Dynamic), ""
		m, err := f.sub("TensorShapeProto.Dimension")
		if err != nil {
			return err
		}
		if len(d.Shape) >= mostDimensions {
			return fmt.Errorf("%w: a shape has more than %d dimensions", ErrModel, mostDimensions)
		}
		err = m.each(func(f field) (err error) {
			switch f.number {
			case 1: // dim_value
				size, err = f.integer()
				size, name = max(size, tensor.Dynamic), ""
			case 2: // dim_param
				size = tensor.Dynamic
				name, err = f.text()
			}
			return err
		})
		d.Shape, d.names = append(d.Shape, size), append(d.names, name)
		return err
	})
}
