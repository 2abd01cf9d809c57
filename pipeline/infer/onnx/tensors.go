// SPDX-License-Identifier: Apache-2.0

package onnx

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tegracast/tegracast/pipeline/printable"
)

const (
	typeString     = 8 // TensorProto.DataType.STRING
	mostDimensions = 64
)

// The fields of a TensorProto that hold elements.
const (
	floatData  = 4
	int32Data  = 5
	stringData = 6
	int64Data  = 7
	rawData    = 9
	doubleData = 10
	uint64Data = 11
)

// elements maps TensorProto.DataType to the field that holds the elements if rawData does not, the size of an element in
// bits, and how many entries of the field it takes (4 bits take half an entry).
var elements = [...]struct {
	field protowire.Number
	bits  int64
	per   int64 // entries for 4 elements
}{
	1: {floatData, 32, 4}, 2: {int32Data, 8, 4}, 3: {int32Data, 8, 4}, 4: {int32Data, 16, 4}, 5: {int32Data, 16, 4}, 6: {int32Data, 32, 4},
	7: {int64Data, 64, 4}, typeString: {stringData, 8, 4}, 9: {int32Data, 8, 4}, 10: {int32Data, 16, 4}, 11: {doubleData, 64, 4},
	12: {uint64Data, 32, 4}, 13: {uint64Data, 64, 4}, 14: {floatData, 64, 8}, 15: {doubleData, 128, 8}, 16: {int32Data, 16, 4},
	17: {int32Data, 8, 4}, 18: {int32Data, 8, 4}, 19: {int32Data, 8, 4}, 20: {int32Data, 8, 4}, 21: {int32Data, 4, 2}, 22: {int32Data, 4, 2},
	23: {int32Data, 4, 2}, 24: {int32Data, 8, 4}, 25: {int32Data, 2, 1}, 26: {int32Data, 2, 1},
}

// A proto holds a TensorProto, with the sizes of its data in place of the data.
type proto struct {
	name     string
	dims     []int64
	kind     int64
	counts   [uint64Data + 1]int64 // entries by field; of rawData the bytes
	raw      bool
	location map[string]string // external_data
	external bool
}

// tensor reads a TensorProto, and returns its name.
func (p *parser) tensor(f field) (string, error) {
	var t proto
	m, err := f.sub("TensorProto")
	if err != nil {
		return "", err
	}
	if err := errors.Join(m.each(t.read), p.count()); err != nil {
		return "", err
	}
	bytes, err := p.check(&t)
	if err == nil {
		err = p.add(bytes)
	}
	if err != nil {
		return "", fmt.Errorf("tensor %q: %w", t.name, err)
	}
	return t.name, nil
}

// add counts the bytes of a tensor.
func (p *parser) add(bytes int64) error {
	if bytes > p.limits.Bytes-p.bytes {
		return fmt.Errorf("%w: its tensors have more than %d bytes", ErrModel, p.limits.Bytes)
	}
	p.bytes += bytes
	return nil
}

func (t *proto) read(f field) (err error) {
	switch n := &t.counts[min(f.number, uint64Data)]; f.number {
	case 1: // dims
		err = f.integers(func(d int64) error {
			if t.dims = append(t.dims, d); len(t.dims) > mostDimensions {
				return fmt.Errorf("%w: a tensor has more than %d dimensions", ErrModel, mostDimensions)
			}
			return nil
		})
	case 2: // data_type
		t.kind, err = f.integer()
	case 3: // segment
		err = fmt.Errorf("%w: a tensor is a segment of one, which is not supported", ErrModel)
	case floatData, doubleData:
		size := int64(4)
		if f.number == doubleData {
			size = 8
		}
		more, bad := f.floats(size)
		*n, err = *n+more, bad
	case int32Data, int64Data, uint64Data:
		err = f.integers(func(int64) error { *n++; return nil })
	case stringData:
		*n++
	case 8: // name
		t.name, err = f.text()
	case rawData:
		t.raw, *n, err = true, f.end-f.at, errors.Join(f.once(), f.is(protowire.BytesType))
	case 13: // external_data
		err = t.readLocation(f)
	case 14: // data_location
		n, bad := f.integer()
		t.external, err = n == 1, bad
	}
	return err
}

// readLocation reads a StringStringEntryProto of external_data.
func (t *proto) readLocation(f field) error {
	var key, value string
	m, err := f.sub("StringStringEntryProto")
	if err != nil {
		return err
	}
	err = m.each(func(f field) (err error) {
		switch f.number {
		case 1:
			key, err = f.text()
		case 2:
			value, err = f.text()
		}
		return err
	})
	if _, twice := t.location[key]; twice {
		err = errors.Join(err, fmt.Errorf("%w: external_data has %q twice", ErrModel, key))
	}
	if t.location == nil {
		t.location = map[string]string{}
	}
	if len(t.location) < 16 {
		t.location[key] = value
	}
	return err
}

// check returns the size of the tensor in memory. It returns an error if the data has another size than the shape.
func (p *parser) check(t *proto) (int64, error) {
	if t.kind < 1 || t.kind >= int64(len(elements)) {
		return 0, fmt.Errorf("%w: elements of type %d, which is not known", ErrModel, t.kind)
	}
	e := elements[t.kind]
	n, err := product(t.dims, p.limits.Bytes)
	if err != nil {
		return 0, err
	}
	bytes := (n*e.bits + 7) / 8
	if t.external {
		return bytes, p.locate(t, bytes)
	}
	got, want, unit := t.counts[e.field], (n*e.per+3)/4, "elements"
	if t.raw && t.kind != typeString {
		got, want, unit = t.counts[rawData], bytes, "bytes"
	}
	total := int64(0)
	for _, c := range t.counts {
		total += c
	}
	if got != want || total != want {
		return 0, fmt.Errorf("%w: it is damaged: the shape %v needs %d %s of data, and there are %d", ErrModel, t.dims, want, unit, max(got, total))
	}
	return bytes, nil
}

// product returns the number of elements of a shape, which is at most most.
func product(dims []int64, most int64) (int64, error) {
	n := int64(1)
	if slices.Contains(dims, 0) {
		n = 0
	}
	for _, d := range dims {
		if d < 0 || n > 0 && d > most/n {
			return 0, fmt.Errorf("%w: the shape %v is negative, or has more than %d elements", ErrModel, dims, most)
		}
		n *= d
	}
	return n, nil
}

// locate checks that the bytes of a tensor are in a file of the model's folder. Names that begin with */ have a meaning
// of their own in ONNX Runtime: its own memory.
func (p *parser) locate(t *proto, bytes int64) error {
	name := t.location["location"]
	if t.kind == typeString || name == "" {
		return fmt.Errorf("%w: external data without a file, or with texts", ErrModel)
	}
	if !filepath.IsLocal(name) || slices.Contains(strings.Split(name, "/"), "..") || strings.HasPrefix(name, "*") || printable.Text(name) != name {
		return fmt.Errorf("%w: its data is in %q, which is not below the model's folder", ErrModel, name)
	}
	size, err := p.size(filepath.Clean(name))
	if err != nil {
		return err
	}
	offset, bad := strconv.ParseInt(cmp.Or(t.location["offset"], "0"), 10, 64)
	length, badLength := strconv.ParseInt(cmp.Or(t.location["length"], strconv.FormatInt(bytes, 10)), 10, 64)
	switch {
	case bad != nil || badLength != nil:
		return fmt.Errorf("%w: its data is at offset %q with length %q", ErrModel, t.location["offset"], t.location["length"])
	case length != bytes:
		return fmt.Errorf("%w: it is damaged: the shape %v needs %d bytes of data, and %d are said to be in %s", ErrModel, t.dims, bytes, length, name)
	case offset < 0 || offset > math.MaxInt64-length || offset+length > size:
		return fmt.Errorf("%w: %s is truncated, or of another model: the data is at %d to %d, and it has %d bytes", ErrModel, name, offset, offset+length, size)
	}
	return nil
}

// size returns the size of a file with weights.
func (p *parser) size(name string) (int64, error) {
	if size, known := p.files[name]; known {
		return size, nil
	}
	f, size, err := regular(p.root.Stat, p.root.OpenFile, name)
	if err != nil {
		return 0, fmt.Errorf("%w: its data is not in a regular file below the model's folder: %w", ErrModel, err)
	}
	if err := f.Close(); err != nil {
		return 0, err
	}
	if size > p.limits.Bytes-p.model.Size {
		return 0, fmt.Errorf("%w: its files have more than %d bytes", ErrModel, p.limits.Bytes)
	}
	p.files[name] = size
	p.model.Size += size
	p.model.Files = append(p.model.Files, name)
	return size, nil
}

// sparse reads a SparseTensorProto, and returns its name, which is that of its values. It counts as if it were dense.
func (p *parser) sparse(f field) (name string, err error) {
	m, err := f.sub("SparseTensorProto")
	if err != nil {
		return "", err
	}
	var dims []int64
	err = m.each(func(f field) (err error) {
		switch f.number {
		case 1: // values
			name, err = p.tensor(f)
			err = errors.Join(f.once(), err)
		case 2: // indices
			_, err = p.tensor(f)
			err = errors.Join(f.once(), err)
		case 3: // dims
			err = f.integers(func(d int64) error {
				if dims = append(dims, d); len(dims) > mostDimensions {
					return fmt.Errorf("%w: a sparse tensor has more than %d dimensions", ErrModel, mostDimensions)
				}
				return nil
			})
		}
		return err
	})
	n, bad := product(dims, p.limits.Bytes/8)
	if err = errors.Join(err, bad); err != nil {
		return "", err
	}
	return name, p.add(n * 8)
}
