// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"fmt"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/printable"
)

// A reader parses a message. Once a field is missing or invalid, it is bad and further fields read as zero.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) takeBytes(n int) []byte {
	if r.bad = r.bad || n > len(r.rest); r.bad {
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) word16() uint16 {
	if b := r.takeBytes(2); b != nil {
		return le.Uint16(b)
	}
	return 0
}

func (r *reader) word32() uint32 {
	if b := r.takeBytes(4); b != nil {
		return le.Uint32(b)
	}
	return 0
}

func (r *reader) word64() uint64 {
	if b := r.takeBytes(8); b != nil {
		return le.Uint64(b)
	}
	return 0
}

// small reads a number of pixels, which must be at most 32768.
func (r *reader) small() int {
	n := r.word32()
	r.bad = r.bad || n > 1<<15
	return int(n & (1<<16 - 1))
}

// time reads a time in ns since 1970; 0 means unknown.
func (r *reader) time() time.Time {
	if n := r.word64(); n != 0 {
		return time.Unix(0, int64(n))
	}
	return time.Time{}
}

// text reads a string of at most most bytes, and makes it printable.
func (r *reader) text(most int) string {
	n := r.takeBytes(1)
	if n == nil {
		return ""
	}
	r.bad = r.bad || int(n[0]) > most
	return printable.Text(string(r.takeBytes(int(n[0]))))
}

// checkEnd returns an error if something was missing or invalid, or is left over.
func (r *reader) checkEnd(what string) error {
	if r.bad || len(r.rest) > 0 {
		return fmt.Errorf("%w: %s, %d bytes behind its end", errWire, what, len(r.rest))
	}
	return nil
}

func appendFormat(b []byte, f pipeline.Format) []byte {
	for _, n := range []int{int(f.Pixel), f.Width, f.Height, f.Stride, f.Rate.Num, f.Rate.Den, int(f.Color)} {
		b = le.AppendUint32(b, uint32(n))
	}
	return b
}

// format reads a format of frames in host memory.
func (r *reader) format() (f pipeline.Format, err error) {
	f.Pixel = pipeline.PixelFormat(r.word32())
	f.Width, f.Height, f.Stride = r.small(), r.small(), int(r.word32())
	f.Rate = pipeline.Rate{Num: int(int32(r.word32())), Den: int(int32(r.word32()))}
	color := r.word32()
	f.Color = pipeline.Colorimetry(color)
	if r.bad || color > uint32(pipeline.BT601Limited) {
		return f, fmt.Errorf("%w: format", errWire)
	}
	if err := f.Validate(); err != nil {
		return f, fmt.Errorf("%w: %w", errWire, err)
	}
	if f.Size() > maxFrame {
		return f, fmt.Errorf("%w: frames of %d bytes", errWire, f.Size())
	}
	return f, nil
}
