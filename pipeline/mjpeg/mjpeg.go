// SPDX-License-Identifier: Apache-2.0

// Package mjpeg completes the JPEG files of cameras. Those of Motion JPEG may lack the Huffman tables, which most
// decoders need, and may be padded at their end.
package mjpeg

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrFile means that a file is no JPEG file, or is damaged.
var ErrFile = errors.New("not a JPEG file")

// Markers of ITU-T T.81 Table B.1, without the preceding 0xff.
const (
	soi = 0xd8
	eoi = 0xd9
	sos = 0xda
	dht = 0xc4
)

// Trim returns file without the bytes after its last EOI marker. whole is false if it does not begin with SOI, or has no
// EOI, because it is cut.
func Trim(file []byte) (trimmed []byte, whole bool) {
	end := bytes.LastIndex(file, []byte{0xff, eoi})
	return file[:max(end+2, 0)], end >= 2 && bytes.HasPrefix(file, []byte{0xff, soi})
}

// Append appends file to b, with the Huffman tables of HuffmanTables before its scan if it has none, and without bytes
// after its last EOI marker. It reads no more than the segments before the scan. The error wraps ErrFile.
func Append(b, file []byte) ([]byte, error) {
	if !bytes.HasPrefix(file, []byte{0xff, soi}) {
		return b, fmt.Errorf("%w: it begins with % x", ErrFile, file[:min(2, len(file))])
	}
	size := len(file)
	file, whole := Trim(file)
	if !whole {
		return b, fmt.Errorf("%w: no end after %d bytes: it is cut", ErrFile, size)
	}
	tables := false
	for at := 2; ; {
		rest := file[at:]
		for len(rest) > 1 && rest[1] == 0xff { // fill bytes
			rest, at = rest[1:], at+1
		}
		switch {
		case len(rest) < 4 || rest[0] != 0xff:
			return b, fmt.Errorf("%w: no marker at byte %d", ErrFile, at)
		case rest[1] == dht:
			tables = true
		case rest[1] == sos && tables:
			return append(b, file...), nil
		case rest[1] == sos:
			return append(appendTables(append(b, file[:at]...)), rest...), nil
		}
		length := 2 + int(binary.BigEndian.Uint16(rest[2:]))
		if length < 4 || length > len(rest) {
			return b, fmt.Errorf("%w: the segment at byte %d has %d bytes of %d", ErrFile, at, length, len(rest))
		}
		at += length
	}
}

// appendTables appends a DHT segment with all tables.
func appendTables(b []byte) []byte {
	tables := HuffmanTables()
	all := bytes.Join(tables[:], nil)
	b = append(b, 0xff, dht, byte((2+len(all))>>8), byte(2+len(all)))
	return append(b, all...)
}
