// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"fmt"
	"image"
	"image/jpeg"
	"io"

	"github.com/tegracast/tegracast/pipeline"
)

// A JPEGEncoder encodes JPEG files that RFC 2435 type 1 can carry: baseline 4:2:0 with the standard Huffman tables. It
// belongs to its opener, who must close it.
type JPEGEncoder interface {
	// Encode appends a complete file with the picture of f, which is I420, to dst. It must not write beyond dst's
	// capacity.
	Encode(dst []byte, f *pipeline.Frame) ([]byte, error)
	Close() error
}

// goEncoder encodes with image/jpeg.
type goEncoder struct {
	options jpeg.Options
	img     image.YCbCr // a view of the frame's slot
	out     fixedWriter
}

// NewJPEGEncoder returns an encoder that uses the CPU, with image/jpeg. quality is from 1 to 100.
func NewJPEGEncoder(quality int) JPEGEncoder {
	return &goEncoder{options: jpeg.Options{Quality: quality}}
}

// Encode implements JPEGEncoder.
func (e *goEncoder) Encode(dst []byte, f *pipeline.Frame) ([]byte, error) {
	w, h, stride := f.Format.Width, f.Format.Height, f.Format.Stride
	luma, chroma := stride*h, stride*h/4
	if len(f.Bytes) < luma+2*chroma {
		return dst, fmt.Errorf("%w: frame %d has %d bytes, its format %d", ErrFormat, f.Sequence, len(f.Bytes), luma+2*chroma)
	}
	e.img = image.YCbCr{
		Y: f.Bytes[:luma], Cb: f.Bytes[luma:][:chroma], Cr: f.Bytes[luma+chroma:][:chroma],
		YStride: stride, CStride: stride / 2, SubsampleRatio: image.YCbCrSubsampleRatio420, Rect: image.Rect(0, 0, w, h),
	}
	e.out.b = dst
	err := jpeg.Encode(&e.out, &e.img, &e.options)
	dst, e.out.b = e.out.b, nil
	return dst, err
}

// Close implements JPEGEncoder. There is nothing to free.
func (e *goEncoder) Close() error { return nil }

// fixedWriter appends to b within its capacity. It has the methods Flush and WriteByte so that image/jpeg writes to it
// directly instead of through a buffer of its own.
type fixedWriter struct{ b []byte }

func (w *fixedWriter) Write(p []byte) (int, error) {
	if len(p) > cap(w.b)-len(w.b) {
		return 0, io.ErrShortBuffer
	}
	w.b = append(w.b, p...)
	return len(p), nil
}

func (w *fixedWriter) WriteByte(c byte) error {
	if len(w.b) == cap(w.b) {
		return io.ErrShortBuffer
	}
	w.b = append(w.b, c)
	return nil
}

func (w *fixedWriter) Flush() error { return nil }
