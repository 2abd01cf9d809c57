// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"

	"github.com/tegracast/tegracast/pipeline"
)

// Errors about the contents of a YUV4MPEG2 file wrap one of these.
var (
	ErrY4M     = errors.New("malformed YUV4MPEG2")
	ErrY4MKind = errors.New("unsupported YUV4MPEG2") // valid, but of a kind that is not read
)

const (
	y4mMagic   = "YUV4MPEG2"
	y4mFrame   = "FRAME"
	y4mMaxLine = 4096 // maximum length of a header line with its newline; mjpegtools accept less
)

// A y4m is the index of a YUV4MPEG2 file (yuv4mpeg(5)).
type y4m struct {
	format pipeline.Format
	planar bool    // 4:2:2 in planes, to be interleaved into UYVY
	frames []int64 // offset of the samples of each frame
}

// y4mPixels maps the supported values of the C parameter to pixel formats. The three names of 4:2:0 with a suffix
// differ in where chroma samples are sited, which is not used; they say nothing about the range.
var y4mPixels = map[string]pipeline.PixelFormat{
	"": pipeline.I420, "420": pipeline.I420, "420jpeg": pipeline.I420, "420mpeg2": pipeline.I420, "420paldv": pipeline.I420,
	"422": pipeline.UYVY, "mono": pipeline.Grey,
}

// y4mChroma matches the values of the C parameter that other programs write for samples that are not supported.
var y4mChroma = regexp.MustCompile(`^(411|440|444|444alpha|(420|422|440|444|mono)p?[0-9]+)$`)

// y4mRate is the rate of a file that does not give one, in frames per second.
const y4mRate = 30

// y4mError adds the offset in the file to an error, which wraps ErrY4M unless it wraps ErrY4MKind.
func y4mError(at int64, format string, a ...any) error {
	err := fmt.Errorf(format, a...)
	if errors.Is(err, ErrY4MKind) {
		return fmt.Errorf("byte %d: %w", at, err)
	}
	return fmt.Errorf("%w: byte %d: %w", ErrY4M, at, err)
}

// parseY4M reads the stream header and all frame headers of a file of the given size, but no samples.
func parseY4M(r io.ReaderAt, size int64) (*y4m, error) {
	buf := make([]byte, y4mMaxLine)
	line, err := y4mLine(r, buf, 0, size)
	if err != nil {
		return nil, err
	}
	y := &y4m{}
	if err := y.header(line); err != nil {
		return nil, err
	}
	length := int64(y.format.Size())
	for at := int64(len(line)) + 1; at < size; {
		line, err := y4mLine(r, buf, at, size)
		if err != nil {
			return nil, err
		}
		if err := checkFrameHeader(line, at); err != nil {
			return nil, err
		}
		at += int64(len(line)) + 1
		if size-at < length {
			return nil, y4mError(at, "frame %d needs %d bytes, the file has %d more: it was cut off",
				len(y.frames), length, size-at)
		}
		if y.frames = append(y.frames, at); len(y.frames) > maxFrames {
			return nil, y4mError(at, "more than %d frames: cut the file", maxFrames)
		}
		at += length
	}
	if len(y.frames) == 0 {
		return nil, y4mError(size, "no frame follows the header")
	}
	return y, nil
}

// y4mLine reads a header line into buf and returns it without its newline.
func y4mLine(r io.ReaderAt, buf []byte, at, size int64) ([]byte, error) {
	buf = buf[:min(int64(len(buf)), size-at)]
	if _, err := r.ReadAt(buf, at); err != nil && err != io.EOF {
		return nil, err
	}
	end := bytes.IndexByte(buf, '\n')
	if end < 0 {
		return nil, y4mError(at, "no newline within %d bytes", len(buf))
	}
	return buf[:end], nil
}

func checkFrameHeader(line []byte, at int64) error {
	rest, ok := bytes.CutPrefix(line, []byte(y4mFrame))
	if !ok || (len(rest) > 0 && rest[0] != ' ') {
		return y4mError(at, "%q instead of %q", line[:min(len(line), 16)], y4mFrame)
	}
	for _, field := range bytes.Fields(rest) {
		if field[0] == 'I' {
			return y4mError(at, "%w: frame parameter %q: only progressive frames of constant rate are read", ErrY4MKind, field)
		}
	}
	return nil
}

// y4mTags holds the parameters of the stream header.
type y4mTags struct {
	seen          [256]bool
	width, height int
	rate          pipeline.Rate
	chroma        string
	full          bool
}

// header parses the stream header: the magic, then parameters separated by spaces, each a letter followed by its value.
func (y *y4m) header(line []byte) error {
	rest, ok := bytes.CutPrefix(line, []byte(y4mMagic))
	if !ok || (len(rest) > 0 && rest[0] != ' ') {
		return y4mError(0, "%q instead of %q", line[:min(len(line), 16)], y4mMagic)
	}
	t := y4mTags{chroma: "420jpeg"} // the default of yuv4mpeg(5) if there is no C
	for at := len(y4mMagic); at < len(line); {
		at++ // the space
		field := line[at:]
		if n := bytes.IndexByte(field, ' '); n >= 0 {
			field = field[:n]
		}
		if len(field) > 0 { // some writers produce double or trailing spaces
			if err := t.set(field[0], string(field[1:])); err != nil {
				return y4mError(int64(at), "parameter %q: %w", field, err)
			}
		}
		at += len(field)
	}
	if t.width == 0 || t.height == 0 {
		return y4mError(int64(len(line)), "the header gives no width (W) or no height (H)")
	}
	return y.adopt(t)
}

func (t *y4mTags) set(tag byte, value string) error {
	var err error
	if t.seen[tag] && tag != 'X' {
		return errors.New("is given twice")
	}
	t.seen[tag] = true
	switch tag {
	case 'W':
		t.width, err = y4mNumber(value)
	case 'H':
		t.height, err = y4mNumber(value)
	case 'F':
		t.rate, err = parseY4MRate(value)
	case 'C':
		t.chroma = value
		if _, known := y4mPixels[value]; !known && y4mChroma.MatchString(value) {
			err = fmt.Errorf("%w: only 4:2:0, 4:2:2 and mono of 8 bits are read: convert with ffmpeg -pix_fmt yuv420p or yuv422p", ErrY4MKind)
		} else if !known || value == "" {
			err = errors.New("no such samples: C420 and C422 are read")
		}
	case 'I':
		switch value {
		case "p", "?":
		case "t", "b", "m":
			err = fmt.Errorf("%w: the frames are interlaced: deinterlace them with ffmpeg -vf yadif", ErrY4MKind)
		default:
			err = errors.New("must be p, t, b, m or ?")
		}
	case 'X':
		switch value {
		case "COLORRANGE=FULL":
			t.full = true
		case "COLORRANGE=LIMITED":
			t.full = false
		}
	case 'A': // pixel aspect ratio, not used
	default:
		err = errors.New("unknown parameter; known are W, H, F, I, A, C and X")
	}
	return err
}

func y4mNumber(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 15)
	if err != nil || n == 0 {
		return 0, errors.New("must be a number from 1 to 32767")
	}
	return int(n), nil
}

// parseY4MRate parses num:den. 0:0 means an unknown rate.
func parseY4MRate(s string) (pipeline.Rate, error) {
	num, den, ok := bytes.Cut([]byte(s), []byte(":"))
	n, err1 := strconv.ParseUint(string(num), 10, 31)
	d, err2 := strconv.ParseUint(string(den), 10, 31)
	if !ok || err1 != nil || err2 != nil || (n == 0) != (d == 0) {
		return pipeline.Rate{}, errors.New("must be a rate like 30:1 or 30000:1001, or 0:0 for unknown")
	}
	return pipeline.Rate{Num: int(n), Den: int(d)}, nil
}

// adopt chooses the format. The range is limited unless XCOLORRANGE=FULL says otherwise, as ffmpeg writes and reads it.
// YUV4MPEG2 does not specify the matrix: full range is taken as BT.601, as in JFIF, and limited range as BT.709.
func (y *y4m) adopt(t y4mTags) error {
	pixel := y4mPixels[t.chroma]
	y.planar = pixel == pipeline.UYVY
	f, err := pipeline.NewFormat(pixel, t.width, t.height, cmp.Or(t.rate, pipeline.Rate{Num: y4mRate, Den: 1}))
	if err != nil {
		return y4mError(0, "%w", err)
	}
	if f.Color = pipeline.BT709Limited; t.full {
		f.Color = pipeline.BT601Full
	}
	y.format = f
	return nil
}

// interleave converts a tight frame of 4:2:2 planes to UYVY. dst and planes have the same size.
func interleave(dst, planes []byte) {
	n := len(planes) / 4 // chroma samples
	y, cb, cr := planes[:2*n], planes[2*n:3*n], planes[3*n:4*n]
	for i := range cb {
		luma := (*[2]byte)(y[2*i:])
		*(*[4]byte)(dst[4*i:]) = [4]byte{cb[i], luma[0], cr[i], luma[1]}
	}
}
