// SPDX-License-Identifier: Apache-2.0

package onnx

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
)

// Limits of the texts that are read: names, domains, paths.
const (
	longest  = 4096     // bytes of each
	mostText = 16 << 20 // bytes of all
)

// A reader reads protobuf's wire format from a file, from its beginning to its end. It keeps no bytes.
type reader struct {
	in   *bufio.Reader
	at   int64 // bytes read
	text int64 // bytes of texts read
}

// ReadByte counts what is read as a varint.
func (r *reader) ReadByte() (byte, error) {
	b, err := r.in.ReadByte()
	if err == nil {
		r.at++
	}
	return b, err
}

func (r *reader) skip(n int64) error {
	done, err := r.in.Discard(int(n))
	r.at += int64(done)
	return r.failed(err)
}

// failed returns the error for one of reading.
func (r *reader) failed(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it is truncated: it ends at byte %d", ErrModel, r.at)
	}
	return err
}

// A message is a message of onnx.proto in the file.
type message struct {
	*reader
	name string // in onnx.proto
	end  int64  // where it ends in the file
	seen uint64 // bits of the numbers of fields that may occur once
}

// A field is a field of a message.
type field struct {
	*message
	number protowire.Number
	kind   protowire.Type
	value  uint64 // of a varint
	end    int64  // where it ends in the file
}

// each calls do with each field, and skips what do has not read of it.
func (m *message) each(do func(f field) error) error {
	for m.at < m.end {
		f, err := m.next()
		if err == nil {
			err = do(f)
		}
		if err == nil {
			err = m.skip(f.end - m.at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *message) next() (field, error) {
	start := m.at
	tag, err := m.varint(m.end)
	if err != nil {
		return field{}, err
	}
	number, kind := protowire.DecodeTag(tag)
	f := field{message: m, number: number, kind: kind}
	length := uint64(0)
	switch kind {
	case protowire.VarintType:
		f.value, err = m.varint(m.end)
	case protowire.Fixed32Type:
		length = 4
	case protowire.Fixed64Type:
		length = 8
	case protowire.BytesType:
		length, err = m.varint(m.end)
	default:
		number = 0
	}
	if err != nil {
		return field{}, err
	}
	if number <= 0 {
		return field{}, fmt.Errorf("%w: it is damaged, or no ONNX model: byte %d, in a %s, begins no field", ErrModel, start, m.name)
	}
	if left := m.end - m.at; length > uint64(left) {
		return field{}, fmt.Errorf("%w: it is truncated or damaged: field %d of a %s at byte %d has %d bytes, and there are %d",
			ErrModel, number, m.name, start, length, left)
	}
	f.end = m.at + int64(length)
	return f, nil
}

// varint reads a varint that ends before end.
func (m *message) varint(end int64) (uint64, error) {
	start := m.at
	value, err := binary.ReadUvarint(m.reader)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return 0, m.failed(err)
	case err != nil, m.at > end:
		return 0, fmt.Errorf("%w: it is damaged, or no ONNX model: byte %d, in a %s, begins no number", ErrModel, start, m.name)
	}
	return value, nil
}

// sub returns the message that a field contains.
func (f field) sub(name string) (*message, error) {
	return &message{reader: f.reader, name: name, end: f.end}, f.is(protowire.BytesType)
}

// is returns an error if the field has another type on the wire.
func (f field) is(kind protowire.Type) error {
	if f.kind != kind {
		return fmt.Errorf("%w: it is damaged, or no ONNX model: field %d of a %s has type %d on the wire", ErrModel, f.number, f.name, f.kind)
	}
	return nil
}

// once returns an error if the message has had this field. Readers of protobuf differ in what they make of that.
func (f field) once() error {
	bit := uint64(1) << f.number
	if f.seen&bit != 0 {
		return fmt.Errorf("%w: it is damaged: a %s has its field %d twice", ErrModel, f.name, f.number)
	}
	f.seen |= bit
	return nil
}

// integer returns the value of a field that may occur once.
func (f field) integer() (int64, error) {
	return int64(f.value), errors.Join(f.once(), f.is(protowire.VarintType))
}

// text reads a field with a text.
func (f field) text() (string, error) {
	n := f.end - f.at
	if err := f.is(protowire.BytesType); err != nil {
		return "", err
	}
	if n > longest {
		return "", fmt.Errorf("%w: field %d of a %s has %d bytes, more than %d", ErrModel, f.number, f.name, n, longest)
	}
	if f.reader.text += n; f.reader.text > mostText {
		return "", fmt.Errorf("%w: its names have more than %d bytes", ErrModel, mostText)
	}
	b := make([]byte, n)
	done, err := io.ReadFull(f.in, b)
	f.at += int64(done)
	return string(b), f.failed(err)
}

// integers passes the values of a repeated field to do. They may be packed.
func (f field) integers(do func(value int64) error) error {
	if f.kind == protowire.VarintType {
		return do(int64(f.value))
	}
	if err := f.is(protowire.BytesType); err != nil {
		return err
	}
	for f.at < f.end {
		value, err := f.varint(f.end)
		if err == nil {
			err = do(int64(value))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// floats returns how many elements of 4 or 8 bytes a repeated field has. They may be packed.
func (f field) floats(size int64) (int64, error) {
	single := protowire.Fixed32Type
	if size == 8 {
		single = protowire.Fixed64Type
	}
	if f.kind == single {
		return 1, nil
	}
	n := f.end - f.at
	if n%size != 0 {
		return 0, fmt.Errorf("%w: it is damaged: field %d of a %s has %d bytes, which are no numbers of %d", ErrModel, f.number, f.name, n, size)
	}
	return n / size, f.is(protowire.BytesType)
}
