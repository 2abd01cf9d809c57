// SPDX-License-Identifier: Apache-2.0

package export

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
)

// newDNG returns a writer that writes a DNG 1.4 file for each frame (Adobe, "Digital Negative Specification"): one
// uncompressed strip with the unchanged samples. There is no colour calibration: the sensor's colours, with the white
// balance as shot, are assumed to be linear sRGB.
func newDNG(_ context.Context, f pipeline.Format, path string) (writer, error) {
	return newFolder(path, ".dng", f, dng)
}

func dng(f pipeline.Format) (still, error) {
	s, ok := f.Pixel.Samples()
	if !ok {
		return nil, cannot(f, "DNG", "a sensor's samples", "export png or y4m")
	}
	return func(out io.Writer, frame *record.Frame, shot func() record.Settings, pixels []byte) error {
		head := dngHead(f, s, frame, shot())
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
	tiffUndefined = 7
	tiffSRational = 10
)

// xyzToSRGB is the matrix from XYZ (D65) to linear sRGB (IEC 61966-2-1), in 1/10000.
var xyzToSRGB = [9]int32{32405, -15371, -4985, -9693, 18760, 416, 556, -2040, 10572}

// Numbers of the tags that point to other parts of the file.
const (
	stripOffsets = 273
	exifIFD      = 34665
)

// Indices into record.Settings.BlackLevels.
const (
	red = iota
	greenRed
	greenBlue
	blue
)

// dngHead returns the part of the file before the samples.
func dngHead(f pipeline.Format, s pipeline.Samples, frame *record.Frame, shot record.Settings) []byte {
	note := frame.Note
	note.Results = nil
	about, _ := json.Marshal(&note) // contains only numbers and booleans
	size := f.Width * f.Height * dngBytes(s)
	tags := []tag{
		longs(254, 0), longs(256, uint32(f.Width)), longs(257, uint32(f.Height)), shorts(258, uint16(8*dngBytes(s))), shorts(259, 1),
		texts(270, string(about)), texts(271, "tegracast"), texts(272, cmp.Or(frame.Image.FrameID, "camera")),
		longs(stripOffsets, 0), longs(exifIFD, 0), // set by directories
		shorts(274, orientation(shot)), shorts(277, 1), longs(278, uint32(f.Height)), longs(279, uint32(size)), shorts(284, 1),
		texts(306, frame.At.UTC().Format(tiffTime)),
		octets(50706, 1, 4, 0, 0), octets(50707, 1, 1, 0, 0), texts(50708, "tegracast "+frame.Image.FrameID), longs(50717, 1<<s.Bits-1),
	}
	black := shot.BlackLevels
	if s.Mosaic == pipeline.Mono {
		tags = append(tags, shorts(262, 34892), longs(50714, uint32(black[greenRed]))) // LinearRaw
	} else {
		pattern := map[pipeline.Mosaic][]int{
			pipeline.RGGB: {red, greenRed, greenBlue, blue}, pipeline.GRBG: {greenRed, red, blue, greenBlue},
			pipeline.GBRG: {greenBlue, blue, red, greenRed}, pipeline.BGGR: {blue, greenBlue, greenRed, red},
		}[s.Mosaic]
		colours, levels := tag{33422, tiffByte, 4, nil}, tag{50714, tiffLong, 4, nil}
		for _, c := range pattern {
			colours.data = append(colours.data, map[int]byte{red: 0, greenRed: 1, greenBlue: 1, blue: 2}[c])
			levels.data = binary.LittleEndian.AppendUint32(levels.data, uint32(black[c]))
		}
		matrix, neutral := colour(shot.WhiteBalance)
		tags = append(
			tags, shorts(262, 32803), shorts(33421, 2, 2), colours, octets(50710, 0, 1, 2), shorts(50711, 1),
			shorts(50713, 2, 2), levels, matrix, neutral, shorts(50778, 21),
		)
	}
	return directories(tags, exif(frame, shot))
}

// orientation returns the value of the tag Orientation. The samples themselves are not turned.
func orientation(shot record.Settings) uint16 {
	if shot.Orientation < 1 || shot.Orientation > 8 {
		return 1
	}
	return uint16(shot.Orientation)
}

// colour returns the tags ColorMatrix1 and AsShotNeutral for the gains of the white balance, which are 0 if they are
// not known. Grey has the colour 1/gains in the sensor's samples.
func colour(gains [3]float64) (matrix, neutral tag) {
	matrix, neutral = tag{50721, tiffSRational, 9, nil}, tag{50728, tiffRational, 3, nil}
	if !(min(gains[0], gains[1], gains[2]) > 0) {
		gains = [3]float64{1, 1, 1}
	}
	least := min(gains[0], gains[1], gains[2])
	const unit = 1e6
	for i, gain := range gains {
		grey := least / gain
		neutral.data = rational(neutral.data, int64(math.Round(unit*grey)), unit)
		for _, v := range xyzToSRGB[3*i : 3*i+3] {
			matrix.data = rational(matrix.data, int64(math.Round(unit/10000*grey*float64(v))), unit)
		}
	}
	return matrix, neutral
}

// rational appends a fraction; both numbers must fit into 32 bits.
func rational(b []byte, numerator, denominator int64) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, uint32(numerator)), uint32(denominator))
}

// tiffTime is the layout of times (TIFF 6.0 §8, Exif 2.32 §4.6.5).
const tiffTime = "2006:01:02 15:04:05"

// exif returns the Exif tags of a frame: its time, and the duration of its exposure if that is known.
func exif(frame *record.Frame, shot record.Settings) []tag {
	at := frame.At.UTC()
	tags := []tag{
		{36864, tiffUndefined, 4, []byte("0232")},
		texts(36867, at.Format(tiffTime)), texts(36881, "+00:00"),
		texts(37521, fmt.Sprintf("%09d", at.Nanosecond())),
	}
	exposure := int64(shot.Exposure)
	if n := &frame.Note; n.ExposureStart != 0 && n.ExposureEnd > n.ExposureStart {
		exposure = n.ExposureEnd - n.ExposureStart
	}
	switch us := exposure / 1000; {
	case exposure > 0 && exposure <= math.MaxUint32:
		tags = append(tags, tag{33434, tiffRational, 1, rational(nil, exposure, 1e9)})
	case exposure > 0 && us <= math.MaxUint32:
		tags = append(tags, tag{33434, tiffRational, 1, rational(nil, us, 1e6)})
	}
	return tags
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

// directories returns the header of a TIFF with a main directory and that of the Exif tags. The caller must append the
// strip.
func directories(tags, exif []tag) []byte {
	le := binary.LittleEndian
	b := le.AppendUint32([]byte{'I', 'I', 42, 0}, 8)
	b = appendDirectory(b, tags)
	at := len(b)
	b = appendDirectory(b, exif)
	b = append(b, make([]byte, (16-len(b)%16)%16)...)
	for i, t := range tags { // which are sorted now
		value := b[8+2+12*i+8:]
		switch t.number {
		case stripOffsets:
			le.PutUint32(value, uint32(len(b)))
		case exifIFD:
			le.PutUint32(value, uint32(at))
		}
	}
	return b
}

// appendDirectory sorts the tags and appends a directory, followed by the values that do not fit into its entries.
func appendDirectory(b []byte, tags []tag) []byte {
	le := binary.LittleEndian
	slices.SortFunc(tags, func(a, b tag) int { return cmp.Compare(a.number, b.number) })
	b = le.AppendUint16(b, uint16(len(tags)))
	behind := len(b) + 12*len(tags) + 4
	var more []byte
	for _, t := range tags {
		b = le.AppendUint32(le.AppendUint16(le.AppendUint16(b, t.number), t.kind), uint32(t.count))
		if len(t.data) <= 4 {
			b = append(b, append(slices.Clone(t.data), 0, 0, 0, 0)[:4]...)
			continue
		}
		b = le.AppendUint32(b, uint32(behind+len(more)))
		more = append(more, t.data...)
		more = append(more, make([]byte, len(more)%2)...) // values begin at even offsets
	}
	return append(le.AppendUint32(b, 0), more...)
}
