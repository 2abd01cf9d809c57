// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
)

// A Y4M writes a YUV4MPEG2 file (yuv4mpeg(5)): UYVY pictures as 4:2:2 planes, I420 pictures unchanged, grey pictures as
// luma alone.
type Y4M struct {
	file   *os.File
	out    *bufio.Writer
	format pipeline.Format
	plane  []byte // one plane, for UYVY
}

func newY4M(_ context.Context, f pipeline.Format, path string) (writer, error) {
	w, err := NewY4M(f, path)
	if err != nil {
		return nil, err
	}
	return y4m{w}, nil
}

// NewY4M creates a file. The error wraps ErrExists if the file exists, or ErrPixels if Y4M does not support the pixels,
// or is that of the file.
func NewY4M(f pipeline.Format, path string) (*Y4M, error) {
	chroma := map[pipeline.PixelFormat]string{pipeline.UYVY: "422", pipeline.I420: "420jpeg", pipeline.Grey: "mono"}[f.Pixel]
	if chroma == "" {
		return nil, cannot(f, "Y4M", "pictures of 8 bits: UYVY, YU12 (4:2:0) or GREY", sensorInstead)
	}
	file, err := create(path)
	if err != nil {
		return nil, err
	}
	w := &Y4M{file: file, out: bufio.NewWriterSize(file, 1<<20), format: f, plane: make([]byte, f.Width*f.Height)}
	colours := "LIMITED"
	if f.Color == pipeline.BT601Full || f.Color == pipeline.BT709Full || f.Color == pipeline.ColorNone {
		colours = "FULL"
	}
	rate := rateOf(f)
	fmt.Fprintf(w.out, "YUV4MPEG2 W%d H%d F%d:%d Ip A1:1 C%s XCOLORRANGE=%s\n", f.Width, f.Height, rate.Num, rate.Den, chroma, colours)
	return w, nil
}

// rateOf returns the frame rate, or 30 if it is not fixed, because video formats require a rate.
func rateOf(f pipeline.Format) pipeline.Rate { return cmp.Or(f.Rate, pipeline.Rate{Num: 30, Den: 1}) }

// Add writes a picture in the format given to NewY4M.
func (w *Y4M) Add(pixels []byte) error {
	f := w.format
	_, err := w.out.WriteString("FRAME\n")
	if f.Pixel == pipeline.UYVY {
		for _, at := range []struct{ first, step int }{{1, 2}, {0, 4}, {2, 4}} { // Y, Cb, Cr
			n := 0
			for y := range f.Height {
				line := pixels[y*f.Stride:][:2*f.Width]
				for x := at.first; x < len(line); x += at.step {
					w.plane[n] = line[x]
					n++
				}
			}
			_, e := w.out.Write(w.plane[:n])
			err = errors.Join(err, e)
		}
		return err
	}
	lines := func(b []byte, width, stride, height int) {
		for y := range height {
			_, e := w.out.Write(b[y*stride:][:width])
			err = errors.Join(err, e)
		}
	}
	lines(pixels, f.Width, f.Stride, f.Height)
	if f.Pixel == pipeline.I420 {
		lines(pixels[f.Stride*f.Height:], f.Width/2, f.Stride/2, f.Height) // both chroma planes
	}
	return err
}

// End writes the remaining data, and closes the file.
func (w *Y4M) End() error { return errors.Join(w.out.Flush(), w.file.Close()) }

// y4m makes Y4M a writer of exports.
type y4m struct{ *Y4M }

func (w y4m) addFrame(_ *record.Frame, pixels []byte) error { return w.Add(pixels) }

func (w y4m) finish() error { return w.End() }
