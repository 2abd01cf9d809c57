// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/tegracast/tegracast/pipeline"
)

// ErrY4M is wrapped by every error about the contents of a YUV4MPEG2 file.
var ErrY4M = errors.New("malformed YUV4MPEG2")

const (
	y4mMagic   = "YUV4MPEG2"
	y4mFrame   = "FRAME"
	y4mMaxLine = 4096 // a header line with its newline; mjpegtools allows fewer
)

// A y4m says where the frames of a YUV4MPEG2 file are (yuv4mpeg(5)).
type y4m struct {
	format pipeline.Format
	planar bool    // 4:2:2 in planes, to be interleaved into UYVY
	frames []int64 // where the samples of each frame begin
}

// y4mChroma are the values of the C parameter that are read.
var y4mChroma = []string{"420jpeg", "420mpeg2", "420", "422"}

// y4mError names the place.
func y4mError(at int64, format string, a ...any) error {
	return fmt.Errorf("%w: byte %d: %w", ErrY4M, at, fmt.Errorf(format, a...))
}

// parseY4M reads the stream header and all frame headers of the file of the given size, but no samples.
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

// y4mLine reads a header line without its newline into buf.
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
			return y4mError(at, "frame parameter %q: only progressive frames of constant rate are read", field)
		}
	}
	return nil
}

// y4mTags are the parameters of the stream header.
type y4mTags struct {
	seen          [256]bool
	width, height int
	rate          pipeline.Rate
	chroma        string
	full          bool
	ranged        bool
}

// header parses the stream header: the magic and parameters that a space separates, each a letter and its value.
func (y *y4m) header(line []byte) error {
	rest, ok := bytes.CutPrefix(line, []byte(y4mMagic))
	if !ok || (len(rest) > 0 && rest[0] != ' ') {
		return y4mError(0, "%q instead of %q", line[:min(len(line), 16)], y4mMagic)
	}
	t := y4mTags{chroma: "420jpeg"} // what yuv4mpeg(5) says when there is no C
	for at := len(y4mMagic); at < len(line); {
		at++ // the space
		field := line[at:]
		if n := bytes.IndexByte(field, ' '); n >= 0 {
			field = field[:n]
		}
		if len(field) > 0 { // writers leave double and trailing spaces
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
		t.rate, err = y4mRate(value)
	case 'C':
		if t.chroma = value; !slices.Contains(y4mChroma, value) {
			err = fmt.Errorf("only %s, of 8 bits, are read: convert with ffmpeg -pix_fmt yuv420p or yuv422p",
				strings.Join(y4mChroma, ", "))
		}
	case 'I':
		if value != "p" && value != "?" {
			err = errors.New("only progressive frames (Ip) are read; deinterlace the file first")
		}
	case 'X':
		switch value {
		case "COLORRANGE=FULL":
			t.full, t.ranged = true, true
		case "COLORRANGE=LIMITED":
			t.full, t.ranged = false, true
		}
	case 'A': // pixel aspect: not ours
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

// y4mRate parses num:den; 0:0 means unknown.
func y4mRate(s string) (pipeline.Rate, error) {
	num, den, ok := bytes.Cut([]byte(s), []byte(":"))
	n, err1 := strconv.ParseUint(string(num), 10, 31)
	d, err2 := strconv.ParseUint(string(den), 10, 31)
	if !ok || err1 != nil || err2 != nil || (n == 0) != (d == 0) {
		return pipeline.Rate{}, errors.New("must be a rate like 30:1 or 30000:1001, or 0:0 for unknown")
	}
	return pipeline.Rate{Num: int(n), Den: int(d)}, nil
}

// adopt chooses the format. YUV4MPEG2 does not name the matrix: full range is taken as BT.601, as JFIF has it, and
// limited range as BT.709. Without XCOLORRANGE, 4:2:0 sited as in JPEG is of full range and all else limited.
func (y *y4m) adopt(t y4mTags) error {
	pixel := pipeline.I420
	if t.chroma == "422" {
		pixel, y.planar = pipeline.UYVY, true
	}
	full := t.full || t.chroma == "420jpeg" && !t.ranged
	f, err := pipeline.NewFormat(pixel, t.width, t.height, t.rate)
	if err != nil {
		return y4mError(0, "%w", err)
	}
	if f.Color = pipeline.BT709Limited; full {
		f.Color = pipeline.BT601Full
	}
	y.format = f
	return nil
}

// interleave makes UYVY out of 4:2:2 planes of a tight frame; both are of the same size.
func interleave(dst, planes []byte) {
	n := len(planes) / 4 // chroma samples
	y, cb, cr := planes[:2*n], planes[2*n:3*n], planes[3*n:4*n]
	for i := range cb {
		luma := (*[2]byte)(y[2*i:])
		*(*[4]byte)(dst[4*i:]) = [4]byte{cb[i], luma[0], cr[i], luma[1]}
	}
}
