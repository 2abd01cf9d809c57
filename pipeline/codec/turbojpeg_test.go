// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

func turbo(t testing.TB, quality int) *TurboJPEG {
	t.Helper()
	e, err := NewTurboJPEG(quality)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// TestTurboJPEG decodes the library's output with image/jpeg: pictures of any even size, with and without padding after
// the lines.
func TestTurboJPEG(t *testing.T) {
	e := turbo(t, 95)
	for _, size := range [][2]int{{2, 2}, {30, 18}, {64, 48}, {322, 242}, {960, 540}} {
		for _, room := range []int{0, 32} {
			f := rtptest.Format(t, pipeline.I420, size[0], size[1], 10)
			f.Stride += room
			frame := rtptest.Frame(f, 3)
			before := []byte("before")
			b, err := e.Encode(append(make([]byte, 0, 4*f.Size()+4096), before...), frame)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.HasPrefix(b, before) {
				t.Fatal("what was there is overwritten")
			}
			picture, err := jpeg.Decode(bytes.NewReader(b[len(before):]))
			if err != nil {
				t.Fatal(err)
			}
			img := picture.(*image.YCbCr)
			if img.Rect.Dx() != f.Width || img.Rect.Dy() != f.Height || img.SubsampleRatio != image.YCbCrSubsampleRatio420 {
				t.Fatalf("%v %v", img.Rect, img.SubsampleRatio)
			}
			luma := f.Stride * f.Height
			for i, plane := range [][]byte{frame.Bytes[:luma], frame.Bytes[luma : luma+luma/4], frame.Bytes[luma+luma/4:]} {
				stride, w, h, got, from := f.Stride, f.Width, f.Height, img.Y, img.YStride
				if i > 0 {
					stride, w, h, got, from = stride/2, w/2, h/2, [][]byte{nil, img.Cb, img.Cr}[i], img.CStride
				}
				var a, b []byte
				for y := range h {
					a, b = append(a, got[y*from:][:w]...), append(b, plane[y*stride:][:w]...)
				}
				if db := rtptest.PSNR(a, b); db < 35 {
					t.Errorf("%dx%d, plane %d: %.1f dB", f.Width, f.Height, i, db)
				}
			}
		}
	}
}

func TestTurboJPEGRefuses(t *testing.T) {
	e := turbo(t, 90)
	f := rtptest.Format(t, pipeline.I420, 64, 48, 10)
	frame := rtptest.Frame(f, 0)
	if _, err := e.Encode(make([]byte, 0, 1000), frame); !errors.Is(err, io.ErrShortBuffer) {
		t.Errorf("no room: %v", err)
	}
	frame.Bytes = frame.Bytes[:len(frame.Bytes)-1]
	if _, err := e.Encode(make([]byte, 0, 1<<20), frame); !errors.Is(err, pipeline.ErrFormat) {
		t.Errorf("a short frame: %v", err)
	}
	frame = rtptest.Frame(f, 0)
	bad := turbo(t, 101)
	if _, err := bad.Encode(make([]byte, 0, 1<<20), frame); err == nil || err.Error() == fmt.Sprintf("frame %d: tjCompressFromYUVPlanes: ", frame.Sequence) {
		t.Errorf("quality 101: %v", err)
	}
}

// BenchmarkTurboJPEG encodes a picture of the page's size and one of a stream's size.
func BenchmarkTurboJPEG(b *testing.B) {
	for _, size := range [][2]int{{960, 540}, {1920, 1080}} {
		b.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(b *testing.B) {
			f := rtptest.Format(b, pipeline.I420, size[0], size[1], 10)
			e, frame, room := turbo(b, 85), rtptest.Frame(f, 1), make([]byte, 0, 4*f.Size()+4096)
			for b.Loop() {
				if _, err := e.Encode(room, frame); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
