// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/tegracast/tegracast/pipeline"
)

// A reader takes a message apart. After the first piece that is not there it is bad, and gives zeros.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) take(n int) []byte {
	if r.bad = r.bad || n > len(r.rest); r.bad {
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) word16() uint16 {
	if b := r.take(2); b != nil {
		return le.Uint16(b)
	}
	return 0
}

func (r *reader) word32() uint32 {
	if b := r.take(4); b != nil {
		return le.Uint32(b)
	}
	return 0
}

func (r *reader) word64() uint64 {
	if b := r.take(8); b != nil {
		return le.Uint64(b)
	}
	return 0
}

// small is a number of pixels.
func (r *reader) small() int {
	n := r.word32()
	r.bad = r.bad || n > 1<<15
	return int(n & (1<<16 - 1))
}

// time is a time in ns since 1970; 0: not known.
func (r *reader) time() time.Time {
	if n := r.word64(); n != 0 {
		return time.Unix(0, int64(n))
	}
	return time.Time{}
}

// text is a word of at most that many bytes.
func (r *reader) text(most int) string {
	n := r.take(1)
	if n == nil {
		return ""
	}
	r.bad = r.bad || int(n[0]) > most
	return printable(r.take(int(n[0])))
}

// printable is what a log may have of a text of somebody else's.
func printable(b []byte) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return '?'
	}, strings.ToValidUTF8(string(b), "?"))
}

// end says whether all was there, and nothing else.
func (r *reader) end(what string) error {
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
