// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/binary"
	"fmt"
	"time"
)

// Names of Foxglove's schemas of images (https://docs.foxglove.dev/docs/sdk/schemas), in protobuf.
const (
	rawImageName        = "foxglove.RawImage"
	compressedImageName = "foxglove.CompressedImage"
	compressedVideoName = "foxglove.CompressedVideo"
)

// protobufNumbers are the numbers of an image's fields; 0: the schema has no such field.
type protobufNumbers struct{ at, frame, width, height, encoding, step, data uint64 }

// protobufOf returns the numbers of a schema's fields, or false if it is none of Foxglove's images.
func protobufOf(schema string) (protobufNumbers, bool) {
	switch schema {
	case rawImageName:
		return protobufNumbers{at: 1, width: 2, height: 3, encoding: 4, step: 5, data: 6, frame: 7}, true
	case compressedImageName:
		return protobufNumbers{at: 1, data: 2, encoding: 3, frame: 4}, true
	case compressedVideoName:
		return protobufNumbers{at: 1, frame: 2, data: 3, encoding: 4}, true
	}
	return protobufNumbers{}, false
}

// maxFields is the maximum number of fields of an image; the schemas have at most seven.
const maxFields = 64

// protobufField is a field of a message: its number, and its value or, if it has a length, its contents.
type protobufField struct {
	number, value uint64
	length        int // of contents in bytes; -1: none
	content       []byte
	head          int // bytes before value or contents
	size          int // bytes of value or contents
}

// parseField parses the field at the beginning of b. If the field has a length, b need not contain all of its content,
// which is then nil. ok is false if there is no valid field, or if it is longer than maxImage.
func parseField(b []byte) (f protobufField, ok bool) {
	tag, n := binary.Uvarint(b)
	if n <= 0 {
		return f, false
	}
	f.number, f.head, f.length = tag>>3, n, -1
	rest := b[n:]
	switch tag & 7 {
	case 0:
		f.value, f.size = binary.Uvarint(rest)
		return f, f.size > 0
	case 1:
		f.size = 8
		return f, len(rest) >= 8
	case 2:
		length, n := binary.Uvarint(rest)
		if n <= 0 || length > maxImage {
			return f, false
		}
		f.head, f.length, f.size = f.head+n, int(length), int(length)
		if rest = rest[n:]; f.length <= len(rest) {
			f.content = rest[:f.length]
		}
		return f, true
	case 5:
		if f.size = 4; len(rest) >= 4 {
			f.value = uint64(binary.LittleEndian.Uint32(rest))
		}
		return f, len(rest) >= 4
	}
	return f, false
}

// parseProtobuf parses an image of Foxglove of size bytes, whose fields may be in any order. read fills a slice with
// the message's bytes from byte at on.
func parseProtobuf(n protobufNumbers, read func(b []byte, at int64) error, size int) (i Image, err error) {
	window := make([]byte, min(size, page))
	at := 0
	for count := 0; at < size; count++ {
		b := window[:min(len(window), size-at)]
		if err := read(b, int64(at)); err != nil {
			return i, err
		}
		f, ok := parseField(b)
		if !ok || count == maxFields || f.size > size-at-f.head {
			return i, fmt.Errorf("%w: %d bytes", errImage, size)
		}
		switch f.number {
		case n.at:
			i.At = protobufTime(f.content)
		case n.frame:
			i.FrameID = string(f.content)
		case n.width:
			i.Width = int(f.value)
		case n.height:
			i.Height = int(f.value)
		case n.encoding:
			i.Encoding = string(f.content)
		case n.step:
			i.Step = int(f.value)
		case n.data:
			i.Tag, i.Pixels, i.Size = at, at+f.head, f.size
		}
		at += f.head + f.size
	}
	i.Behind = size - i.Pixels - i.Size
	return i, nil
}

// protobufTime parses a google.protobuf.Timestamp.
func protobufTime(b []byte) time.Time {
	var value [3]uint64 // by number
	for range 2 {
		f, ok := parseField(b)
		if !ok || f.number >= uint64(len(value)) || f.length >= 0 {
			break
		}
		value[f.number] = f.value
		b = b[f.head+f.size:]
	}
	return time.Unix(int64(value[1]), int64(int32(value[2])))
}
