// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
)

// ErrFFmpeg means that ffmpeg is missing or has failed.
var ErrFFmpeg = errors.New("ffmpeg")

// mkv writes a Matroska file with ffmpeg, losslessly as FFV1: pictures, or a sensor's samples as grey pictures.
type mkv struct {
	format  pipeline.Format
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Writer
	said    bytes.Buffer
	line    []uint16
	words   []byte
}

// ffmpegPixels returns ffmpeg's names for the pixels that it reads and for those that FFV1 stores, both "" if ffmpeg
// cannot read the pixels. Samples become grey.
func ffmpegPixels(f pipeline.Format) (in, out string) {
	switch f.Pixel {
	case pipeline.UYVY:
		return "uyvy422", "yuv422p"
	case pipeline.I420:
		return "yuv420p", "yuv420p"
	case pipeline.RGB24:
		return "rgb24", "gbrp"
	}
	s, ok := f.Pixel.Samples()
	switch {
	case !ok:
		return "", ""
	case s.Bits == 8:
		return "gray", "gray"
	case s.Bits == 10 || s.Bits == 12:
		in = fmt.Sprintf("gray%dle", s.Bits)
		return in, in
	}
	return "gray16le", "gray16le"
}

func newMKV(ctx context.Context, f pipeline.Format, path string) (writer, error) {
	in, out := ffmpegPixels(f)
	if in == "" {
		return nil, cannot(f, "MKV", "UYVY, YU12, RGB or a sensor's samples here", "export mcap")
	}
	program, err := exec.LookPath("ffmpeg")
	if err != nil {
		return nil, fmt.Errorf("%w is not installed, which writes MKV: apt-get install ffmpeg, or export another format", ErrFFmpeg)
	}
	if _, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("%s: %w: remove it, or name another one", path, ErrExists)
	}
	w := &mkv{format: f, line: make([]uint16, f.Width), words: make([]byte, 2*f.Width)}
	args := []string{
		"-nostdin", "-loglevel", "error", "-f", "rawvideo", "-pixel_format", in,
		"-video_size", fmt.Sprintf("%dx%d", f.Width, f.Height), "-framerate", rateOf(f).String(), "-i", "pipe:0",
		"-c:v", "ffv1", "-level", "3", "-slicecrc", "1", "-pix_fmt", out,
	}
	args = append(append(args, colours(f)...), "-f", "matroska", "file:"+path)
	w.command = exec.CommandContext(ctx, program, args...)
	w.command.Stderr = &w.said
	if w.in, err = w.command.StdinPipe(); err != nil {
		return nil, err
	}
	w.out = bufio.NewWriterSize(w.in, 1<<20)
	return w, w.command.Start()
}

// colours returns the options that tell ffmpeg the colorimetry of a picture, or nil for samples and RGB.
func colours(f pipeline.Format) []string {
	matrix, span := "bt709", "tv"
	if f.Color == pipeline.BT601Full || f.Color == pipeline.BT601Limited {
		matrix = "smpte170m"
	}
	if f.Color == pipeline.BT601Full || f.Color == pipeline.BT709Full {
		span = "pc"
	}
	if f.Color == pipeline.ColorNone || f.Pixel == pipeline.RGB24 {
		return nil
	}
	return []string{"-colorspace", matrix, "-color_range", span}
}

func (w *mkv) addFrame(_ *record.Frame, pixels []byte) error {
	f := w.format
	s, samples := f.Pixel.Samples()
	for y := range f.Height {
		line := pixels[y*f.Stride:]
		if samples && s.Packed {
			unpack(w.line, line, s)
			for x, v := range w.line {
				w.words[2*x], w.words[2*x+1] = byte(v), byte(v>>8)
			}
			line = w.words
		} else {
			line = line[:f.Pixel.LineBytes(f.Width)]
		}
		if _, err := w.out.Write(line); err != nil {
			return fmt.Errorf("%w: %w", ErrFFmpeg, err)
		}
	}
	if f.Pixel == pipeline.I420 {
		for y := range f.Height {
			if _, err := w.out.Write(pixels[f.Stride*f.Height+y*f.Stride/2:][:f.Width/2]); err != nil {
				return fmt.Errorf("%w: %w", ErrFFmpeg, err)
			}
		}
	}
	return nil
}

func (w *mkv) finish() error {
	err := errors.Join(w.out.Flush(), w.in.Close(), w.command.Wait())
	if err != nil {
		return fmt.Errorf("%w: %w: %s", ErrFFmpeg, err, bytes.TrimSpace(w.said.Bytes()))
	}
	return nil
}
