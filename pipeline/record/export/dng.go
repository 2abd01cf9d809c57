// SPDX-License-Identifier: Apache-2.0

package export

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"slices"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
)

// newDNG returns a writer that writes a DNG 1.4 file for each frame (Adobe, "Digital Negative Specification"): one
// uncompressed strip with the unchanged samples, and no colour calibration, as the sensor's colours are assumed to be
// linear sRGB.
func newDNG(_ context.Context, f pipeline.Format, path string) (writer, error) {
	return newFolder(path, ".dng", f, dng)
}

func dng(f pipeline.Format) (still, error) {
	s, ok := f.Pixel.Samples()
	if !ok {
		return nil, cannot(f, "DNG", "a sensor's samples", "export png or y4m")
	}
	return func(out io.Writer, frame *record.Frame, pixels []byte) error {
		head := dngHead(f, s, frame)
		if _, err := out.Write(head); err != nil {
			return err
		}
		line, b := make([]uint16, f.Width), make([]byte, 0, f.Width*f.Height*dngBytes(s))
		for y := range f.Height {
			unpack(line, pixels[y*f.Stride:], s)
			for _, v := range line {
				if b = append(b, byte(v)); s.Bits > 8 {
					b = append(b, byte(v>>8))
				}
			}
		}
		_, err := out.Write(b)
		return err
	}, nil
}

// dngBytes returns the number of bytes per sample in the file.
func dngBytes(s pipeline.Samples) int {
	if s.Bits == 8 {
		return 1
	}
	return 2
}

// A tag is an entry of a TIFF directory (TIFF 6.0 §2). Its data consist of elements of one type.
type tag struct {
	number, kind uint16
	count        int
	data         []byte
}

// Types of TIFF elements.
const (
	tiffByte      = 1
	tiffText      = 2
	tiffShort     = 3
	tiffLong      = 4
	tiffRational  = 5
	tiffSRational = 10
)

// xyzToSRGB is the matrix from XYZ (D65) to linear sRGB (IEC 61966-2-1), in 1/10000.
var xyzToSRGB = [9]int32{32405, -15371, -4985, -9693, 18760, 416, 556, -2040, 10572}

// dngHead returns the part of the file before the samples.
func dngHead(f pipeline.Format, s pipeline.Samples, frame *record.Frame) []byte {
	note := frame.Note
	note.Results = nil
	about, _ := json.Marshal(&note) // contains only numbers and booleans
	le := binary.LittleEndian
	var matrix []byte
	for _, v := range xyzToSRGB {
		matrix = le.AppendUint32(le.AppendUint32(matrix, uint32(v)), 10000)
	}
	size := f.Width * f.Height * dngBytes(s)
	tags := []tag{
		longs(254, 0), longs(256, uint32(f.Width)), longs(257, uint32(f.Height)), shorts(258, uint16(8*dngBytes(s))), shorts(259, 1),
		texts(270, string(about)), texts(271, "tegracast"), texts(272, cmp.Or(frame.Image.FrameID, "camera")),
		longs(273, 0), // offset of the strip, set below
		shorts(274, 1), shorts(277, 1), longs(278, uint32(f.Height)), longs(279, uint32(size)), shorts(284, 1),
		texts(306, frame.At.UTC().Format("2006:01:02 15:04:05")),
		octets(50706, 1, 4, 0, 0), octets(50707, 1, 1, 0, 0), texts(50708, "tegracast "+frame.Image.FrameID), longs(50717, 1<<s.Bits-1),
	}
	if s.Mosaic == pipeline.Mono {
		tags = append(tags, shorts(262, 34892)) // LinearRaw
	} else {
		ones := le.AppendUint32(le.AppendUint32(nil, 1), 1)
		pattern := map[pipeline.Mosaic][]byte{
			pipeline.RGGB: {0, 1, 1, 2}, pipeline.GRBG: {1, 0, 2, 1}, pipeline.GBRG: {1, 2, 0, 1}, pipeline.BGGR: {2, 1, 1, 0},
		}[s.Mosaic]
		tags = append(
			tags, shorts(262, 32803), shorts(33421, 2, 2), octets(33422, pattern...), octets(50710, 0, 1, 2), shorts(50711, 1),
			tag{50721, tiffSRational, 9, matrix}, tag{50728, tiffRational, 3, slices.Repeat(ones, 3)}, shorts(50778, 21),
		)
	}
	return directory(tags)
}

func octets(number uint16, v ...byte) tag { return tag{number, tiffByte, len(v), v} }

func texts(number uint16, s string) tag {
	return tag{number, tiffText, len(s) + 1, append([]byte(s), 0)}
}

func shorts(number uint16, v ...uint16) tag {
	t := tag{number, tiffShort, len(v), nil}
	for _, n := range v {
		t.data = binary.LittleEndian.AppendUint16(t.data, n)
	}
	return t
}

func longs(number uint16, v uint32) tag {
	return tag{number, tiffLong, 1, binary.LittleEndian.AppendUint32(nil, v)}
}

// directory returns the header of a TIFF with one directory, followed by the values that do not fit into its entries.
// The caller must append the strip.
func directory(tags []tag) []byte {
	le := binary.LittleEndian
	slices.SortFunc(tags, func(a, b tag) int { return cmp.Compare(a.number, b.number) })
	b := le.AppendUint32([]byte{'I', 'I', 42, 0}, 8)
	b = le.AppendUint16(b, uint16(len(tags)))
	behind := len(b) + 12*len(tags) + 4
	var more []byte
	strip := 0 // position of the value of StripOffsets
	for _, t := range tags {
		b = le.AppendUint32(le.AppendUint16(le.AppendUint16(b, t.number), t.kind), uint32(t.count))
		if t.number == 273 {
			strip = len(b)
		}
		if len(t.data) <= 4 {
			b = append(b, append(slices.Clone(t.data), 0, 0, 0, 0)[:4]...)
			continue
		}
		b = le.AppendUint32(b, uint32(behind+len(more)))
		more = append(more, t.data...)
		more = append(more, make([]byte, len(more)%2)...) // values begin at even offsets
	}
	b = append(le.AppendUint32(b, 0), more...)
	b = append(b, make([]byte, (16-len(b)%16)%16)...)
	le.PutUint32(b[strip:], uint32(len(b)))
	return b
}
