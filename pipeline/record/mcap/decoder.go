// SPDX-License-Identifier: Apache-2.0

package mcap

import "io"

// A decoder reads fields from the front of b. After the first missing field all fields are zero, and err is set.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) bytes(n int64) []byte {
	if d.err != nil || n > int64(len(d.b)) {
		d.err = io.ErrUnexpectedEOF
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) uint16() uint16 {
	if b := d.bytes(2); b != nil {
		return le.Uint16(b)
	}
	return 0
}

func (d *decoder) uint32() uint32 {
	if b := d.bytes(4); b != nil {
		return le.Uint32(b)
	}
	return 0
}

func (d *decoder) uint64() uint64 {
	if b := d.bytes(8); b != nil {
		return le.Uint64(b)
	}
	return 0
}

func (d *decoder) text() string { return string(d.bytes(int64(d.uint32()))) }

func (d *decoder) texts() map[string]string {
	in := &decoder{b: d.bytes(int64(d.uint32())), err: d.err}
	m := map[string]string{}
	for len(in.b) > 0 && in.err == nil {
		k := in.text()
		if m[k] = in.text(); len(m) > maxTexts {
			in.err = io.ErrShortBuffer
		}
	}
	if in.err != nil {
		d.err = in.err
	}
	return m
}

// record reads a record, and returns its type and its contents.
func (d *decoder) record() (Opcode, []byte) {
	op := d.bytes(1)
	n := d.uint64()
	if d.err != nil || n > uint64(len(d.b)) {
		d.err = io.ErrUnexpectedEOF
		return 0, nil
	}
	return Opcode(op[0]), d.bytes(int64(n))
}
