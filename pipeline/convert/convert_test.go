// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"math"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/codec"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

const width, height = 72, 40

var allColours = []pipeline.Colorimetry{pipeline.BT709Limited, pipeline.BT601Full, pipeline.BT709Full, pipeline.BT601Limited}

func formatOf(t testing.TB, p pipeline.PixelFormat, w, h int, c pipeline.Colorimetry) pipeline.Format {
	t.Helper()
	f := rtptest.Format(t, p, w, h, 30)
	f.Color = c
	return f
}

// stored returns a frame in memory with 16 bytes more per line, whose pixels are noise around a slope.
func stored(t testing.TB, p pipeline.PixelFormat, c pipeline.Colorimetry) *pipeline.Frame {
	t.Helper()
	f := formatOf(t, p, width, height, c)
	if p == pipeline.MJPEG {
		img := image.NewYCbCr(image.Rect(0, 0, width, height), image.YCbCrSubsampleRatio420)
		for _, plane := range [][]byte{img.Y, img.Cb, img.Cr} {
			for i := range plane {
				plane[i] = byte(60 + i%100)
			}
		}
		var b bytes.Buffer
		if err := jpeg.Encode(&b, img, nil); err != nil {
			t.Fatal(err)
		}
		return &pipeline.Frame{Format: f, Bytes: b.Bytes()}
	}
	f.Stride += 16
	frame := &pipeline.Frame{Format: f, Bytes: make([]byte, f.Size())}
	random := rand.New(rand.NewPCG(1, uint64(p)))
	for i := range frame.Bytes {
		frame.Bytes[i] = byte(40 + i%120 + random.IntN(60))
	}
	return frame
}

// sample returns Y', Cb and Cr of a pixel as stored, or R', G' and B' of RGB24.
func sample(t testing.TB, f *pipeline.Frame, x, y int) [3]float64 {
	b, stride, luma := f.Bytes, f.Format.Stride, f.Format.Stride*f.Format.Height
	three := func(a, b, c byte) [3]float64 { return [3]float64{float64(a), float64(b), float64(c)} }
	switch f.Format.Pixel {
	case pipeline.UYVY:
		at := b[y*stride+x/2*4:]
		return three(at[1+x%2*2], at[0], at[2])
	case pipeline.RGB24:
		at := b[y*stride+3*x:]
		return three(at[0], at[1], at[2])
	case pipeline.I420:
		at := luma + y/2*(stride/2) + x/2
		return three(b[y*stride+x], b[at], b[at+luma/4])
	case pipeline.NV12:
		at := luma + y/2*stride + x/2*2
		return three(b[y*stride+x], b[at], b[at+1])
	case pipeline.Grey:
		return three(b[y*stride+x], 128, 128)
	case pipeline.MJPEG:
		d, err := codec.NewMJPEG()
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		var img image.YCbCr
		if err := d.Decode(&img, b, width, height); err != nil {
			t.Fatal(err)
		}
		c := img.YCbCrAt(x, y)
		return three(c.Y, c.Cb, c.Cr)
	}
	t.Fatal(f.Format.Pixel)
	return [3]float64{}
}

// toRGB returns R'G'B' from 0 to 1 by the definitions of BT.601 and BT.709.
func toRGB(p [3]float64, c pipeline.Colorimetry) [3]float64 {
	d := coloursOf(c)
	y, u, v := (p[0]-d.black)/d.luma, (p[1]-128)/d.chroma, (p[2]-128)/d.chroma
	r, b := y+2*(1-d.kr)*v, y+2*(1-d.kb)*u
	return [3]float64{r, (y - d.kr*r - d.kb*b) / (1 - d.kr - d.kb), b}
}

func fromRGB(p [3]float64, c pipeline.Colorimetry) [3]float64 {
	d := coloursOf(c)
	y := d.kr*p[0] + (1-d.kr-d.kb)*p[1] + d.kb*p[2]
	return [3]float64{d.black + d.luma*y, 128 + d.chroma*(p[2]-y)/(2*(1-d.kb)), 128 + d.chroma*(p[0]-y)/(2*(1-d.kr))}
}

// TestEveryPair converts each input into each output, in all colours and sizes, and compares each sample with the
// definition, in floating point.
func TestEveryPair(t *testing.T) {
	s := New(Config{Workers: 3})
	defer s.Close()
	for _, from := range Inputs() {
		for _, fromColour := range allColours {
			in := stored(t, from, fromColour)
			if CheckInput(in.Format) != nil {
				continue // R'G'B' of limited range
			}
			rgb, space := rgbOf(t, in), fromColour
			if from == pipeline.RGB24 {
				space = pipeline.BT709Full
			}
			for _, to := range outputs() {
				for _, toColour := range allColours {
					for _, by := range []int{1, 2, 4} {
						out := &pipeline.Frame{Format: formatOf(t, to, width/by, height/by, toColour)}
						out.Format.Stride += 8
						out.Bytes = make([]byte, out.Format.Size())
						name := fmt.Sprintf("%s %s to %s %s of 1/%d", from, fromColour, to, toColour, by)
						process(t, s, name, in, out)
						judge(t, name, rgb, space, out, by)
					}
				}
			}
		}
	}
}

func process(t testing.TB, s *Stage, name string, in, out *pipeline.Frame) {
	t.Helper()
	if err := s.Plan(in.Format, []pipeline.Format{out.Format, out.Format}); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if err := s.Process(t.Context(), in, []*pipeline.Frame{nil, out}); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// rgbOf returns R'G'B' of each pixel.
func rgbOf(t testing.TB, f *pipeline.Frame) (all [][3]float64) {
	decoded := f
	if f.Format.Pixel == pipeline.MJPEG {
		decoded = &pipeline.Frame{Format: formatOf(t, pipeline.I420, width, height, f.Format.Color)}
		decoded.Bytes = make([]byte, decoded.Format.Size())
		d, _ := codec.NewMJPEG()
		defer d.Close()
		var img image.YCbCr
		if err := d.Decode(&img, f.Bytes, width, height); err != nil {
			t.Fatal(err)
		}
		luma := width * height
		for y := range height {
			copy(decoded.Bytes[y*width:], img.Y[y*img.YStride:][:width])
			copy(decoded.Bytes[luma+y/2*(width/2):], img.Cb[y/2*img.CStride:][:width/2])
			copy(decoded.Bytes[luma+luma/4+y/2*(width/2):], img.Cr[y/2*img.CStride:][:width/2])
		}
	}
	for y := range height {
		for x := range width {
			p := sample(t, decoded, x, y)
			if f.Format.Pixel == pipeline.RGB24 {
				p = [3]float64{p[0] / 255, p[1] / 255, p[2] / 255}
			} else {
				p = toRGB(p, f.Format.Color)
			}
			all = append(all, p)
		}
	}
	return all
}

// judge compares a picture with the means of the pixels that its samples belong to.
func judge(t *testing.T, name string, rgb [][3]float64, from pipeline.Colorimetry, out *pipeline.Frame, by int) {
	t.Helper()
	mean := func(x, y, w, h int) (m [3]float64) {
		for i := range w * h {
			p := rgb[(y+i/w)*width+x+i%w]
			for c := range m {
				m[c] += p[c] / float64(w*h)
			}
		}
		return m
	}
	f := out.Format
	down := 1
	if f.Pixel == pipeline.I420 || f.Pixel == pipeline.NV12 {
		down = 2
	}
	worst := 0.0
	for y := range f.Height {
		for x := range f.Width {
			got := sample(t, out, x, y)
			// luma and R'G'B' get the chroma of two pixels, and the chroma of 4:2:0 that of two lines
			luma, chroma := fromRGB(mean(x*by, y*by, by, by), from), fromRGB(mean(x/2*2*by, y*by, 2*by, by), from)
			pixel := toRGB([3]float64{luma[0], chroma[1], chroma[2]}, from)
			want := fromRGB(pixel, f.Color)
			area := fromRGB(mean(x/2*2*by, y/down*down*by, 2*by, down*by), f.Color)
			want[1], want[2] = area[1], area[2]
			switch f.Pixel {
			case pipeline.RGB24:
				for c := range want {
					if want[c] = 255 * pixel[c]; f.Color == pipeline.BT709Limited || f.Color == pipeline.BT601Limited {
						want[c] = 16 + 219*pixel[c]
					}
				}
			case pipeline.Grey:
				want[1], want[2] = 128, 128
			}
			for c := range got {
				worst = max(worst, math.Abs(got[c]-min(max(want[c], 0), 255)))
			}
		}
	}
	if worst > limit(f.Pixel) {
		t.Errorf("%s: a sample is %.2f from the definition", name, worst)
	}
}

// limit returns how far a sample may be from the definition. A sample is rounded twice, and R'G'B' has up to 2.1 times the
// rounding error of chroma.
func limit(p pipeline.PixelFormat) float64 {
	if p == pipeline.RGB24 {
		return 3
	}
	return 1.6
}

// TestPacketReady writes lines into packets: the payloads are the plain picture, and the gaps stay.
func TestPacketReady(t *testing.T) {
	in := stored(t, pipeline.NV12, pipeline.BT709Limited)
	s := New(Config{Workers: 2})
	defer s.Close()
	for _, p := range []pipeline.PixelFormat{pipeline.UYVY, pipeline.RGB24, pipeline.Grey} {
		plain := &pipeline.Frame{Format: formatOf(t, p, width, height, pipeline.BT709Limited)}
		plain.Bytes = make([]byte, plain.Format.Size())
		ready := &pipeline.Frame{Format: plain.Format}
		line := p.LineBytes(width)
		ready.Format.HeaderGap, ready.Format.PacketPitch = 20, 20+line/2
		ready.Bytes = bytes.Repeat([]byte{0xaa}, ready.Format.Size())
		process(t, s, p.String(), in, plain)
		process(t, s, p.String(), in, ready)
		var payloads []byte
		for b := range slices.Chunk(ready.Bytes, 20+line/2) {
			if !bytes.Equal(b[:20], bytes.Repeat([]byte{0xaa}, 20)) {
				t.Fatalf("%s: a gap was written", p)
			}
			payloads = append(payloads, b[20:]...)
		}
		if !bytes.Equal(payloads, plain.Bytes) {
			t.Errorf("%s: other payloads", p)
		}
	}
}

// TestBesideFFmpeg compares a conversion of colours with swscale's.
func TestBesideFFmpeg(t *testing.T) {
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Fatal("ffmpeg is missing: make setup-test")
	}
	in := &pipeline.Frame{Format: formatOf(t, pipeline.UYVY, width, height, pipeline.BT709Limited)}
	in.Bytes = make([]byte, in.Format.Size())
	for i := range in.Bytes {
		in.Bytes[i] = byte(90 + i/width%60 + i%4*10)
	}
	out := &pipeline.Frame{Format: formatOf(t, pipeline.I420, width, height, pipeline.BT601Full)}
	out.Bytes = make([]byte, out.Format.Size())
	s := New(Config{Workers: 1})
	defer s.Close()
	process(t, s, "UYVY to I420", in, out)
	size := fmt.Sprintf("%dx%d", width, height)
	cmd := exec.Command("ffmpeg", "-v", "error", "-f", "rawvideo", "-pixel_format", "uyvy422", "-video_size", size, "-i", "-",
		"-vf", "scale=in_color_matrix=bt709:in_range=tv:out_color_matrix=bt601:out_range=pc:flags=bilinear+accurate_rnd+full_chroma_int+full_chroma_inp,format=yuv420p",
		"-f", "rawvideo", "-")
	cmd.Stdin = bytes.NewReader(in.Bytes)
	var trouble strings.Builder
	cmd.Stderr = &trouble
	b, err := cmd.Output()
	if err != nil || len(b) != len(out.Bytes) {
		t.Fatalf("%v: %d bytes: %s", err, len(b), trouble.String())
	}
	if db := rtptest.PSNR(out.Bytes, b); db < 42 {
		t.Errorf("%.1f dB from FFmpeg's picture", db)
	}
}

func TestRefuses(t *testing.T) {
	s := New(Config{Workers: 1})
	good := formatOf(t, pipeline.UYVY, width, height, pipeline.BT709Limited)
	with := func(change func(f *pipeline.Format)) pipeline.Format { f := good; change(&f); return f }
	for name, in := range map[string]pipeline.Format{
		"samples":       formatOf(t, pipeline.RGGB10, width, height, pipeline.ColorNone),
		"device memory": with(func(f *pipeline.Format) { f.Memory = pipeline.MemoryDevice }),
		"odd height":    with(func(f *pipeline.Format) { f.Height-- }),
		"no colours":    with(func(f *pipeline.Format) { f.Color = pipeline.ColorNone }),
	} {
		if err := s.Plan(in, []pipeline.Format{good}); !errors.Is(err, ErrUnsupported) {
			t.Errorf("input with %s: %v", name, err)
		}
	}
	for name, out := range map[string]pipeline.Format{
		"samples": formatOf(t, pipeline.RGGB10, width, height, pipeline.ColorNone), "a third": formatOf(t, pipeline.UYVY, width/3, height/3&^1, pipeline.BT709Limited),
		"ten bits": formatOf(t, pipeline.UYVP, width, height, pipeline.BT709Limited), "no colours": with(func(f *pipeline.Format) { f.Color = 0 }),
	} {
		if err := s.Plan(good, []pipeline.Format{out}); !errors.Is(err, ErrUnsupported) {
			t.Errorf("output with %s: %v", name, err)
		}
	}
	if err := s.Plan(good, []pipeline.Format{good}); err != nil {
		t.Fatal(err)
	}
	frame, short := &pipeline.Frame{Format: good, Bytes: make([]byte, good.Size())}, &pipeline.Frame{Format: good, Bytes: make([]byte, 10)}
	for name, frames := range map[string][2]*pipeline.Frame{"a short input": {short, frame}, "a short output": {frame, short}} {
		if err := s.Process(t.Context(), frames[0], []*pipeline.Frame{frames[1]}); !errors.Is(err, ErrMismatch) {
			t.Errorf("%s: %v", name, err)
		}
	}
	over, end := context.WithCancel(t.Context())
	end()
	if err := s.Process(over, frame, []*pipeline.Frame{frame}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if err := s.Process(t.Context(), frame, []*pipeline.Frame{frame}); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := s.Plan(good, nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// TestDamagedFile drops a frame whose file is cut, with its number; the next one is made.
func TestDamagedFile(t *testing.T) {
	s := New(Config{Workers: 1})
	defer s.Close()
	in := stored(t, pipeline.MJPEG, pipeline.BT601Full)
	out := &pipeline.Frame{Format: formatOf(t, pipeline.I420, width, height, pipeline.BT601Full)}
	out.Bytes = make([]byte, out.Format.Size())
	process(t, s, "whole", in, out)
	cut := &pipeline.Frame{Format: in.Format, Bytes: in.Bytes[:len(in.Bytes)/2], Sequence: 7}
	if err := s.Process(t.Context(), cut, []*pipeline.Frame{out, nil}); !errors.Is(err, codec.ErrDecode) || !strings.Contains(err.Error(), "frame 7: ") {
		t.Error(err)
	}
	if err := s.Process(t.Context(), in, []*pipeline.Frame{out, nil}); err != nil {
		t.Error(err)
	}
}

func BenchmarkConvert(b *testing.B) {
	for _, to := range []pipeline.PixelFormat{pipeline.I420, pipeline.UYVY} {
		for _, from := range []pipeline.PixelFormat{pipeline.UYVY, pipeline.NV12, pipeline.MJPEG} {
			b.Run(fmt.Sprintf("%s to %s, 1080p, one thread", from, to), func(b *testing.B) {
				f := rtptest.Format(b, from, 1920, 1080, 30)
				in := &pipeline.Frame{Format: f}
				if in.Bytes = make([]byte, f.Size()); from == pipeline.MJPEG {
					e, err := codec.NewTurboJPEG(85)
					if err != nil {
						b.Fatal(err)
					}
					picture := rtptest.Frame(rtptest.Format(b, pipeline.I420, 1920, 1080, 30), 0)
					if in.Bytes, err = e.Encode(make([]byte, 0, 4*f.Size()), picture); err != nil {
						b.Fatal(err)
					}
					_ = e.Close()
				}
				out := &pipeline.Frame{Format: rtptest.Format(b, to, 1920, 1080, 30)}
				out.Bytes = make([]byte, out.Format.Size())
				s := New(Config{Workers: 1})
				defer s.Close()
				process(b, s, "", in, out)
				for b.Loop() {
					if err := s.Process(b.Context(), in, []*pipeline.Frame{out, nil}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
