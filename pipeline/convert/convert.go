// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"image"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/codec"
)

// Errors that callers can distinguish with errors.Is.
var (
	ErrUnsupported = errors.New("convert: unsupported format")
	ErrMismatch    = errors.New("convert: frame is not of the planned format")
	ErrClosed      = errors.New("convert: stage is closed")
)

// Config configures a Stage.
type Config struct {
	Workers int          // goroutines that make a picture at the same time; 0: one for each CPU that Go uses
	Logger  *slog.Logger // nil: slog.Default()
}

// A Stage is a pipeline.Stage that uses the CPU. Plan, Process and Close exclude one another.
type Stage struct {
	config Config

	mu      sync.Mutex
	in      pipeline.Format
	outs    []*output
	decoder *codec.MJPEG // nil until frames are JPEG files
	decoded image.YCbCr
	scratch []*scratch // one for each worker
	closed  bool
}

// New returns a stage, which the caller must close.
func New(c Config) *Stage {
	c.Workers, c.Logger = cmp.Or(c.Workers, runtime.GOMAXPROCS(0)), cmp.Or(c.Logger, slog.Default())
	return &Stage{config: c}
}

// Inputs returns the pixel formats that a stage converts.
func Inputs() []pipeline.PixelFormat {
	return []pipeline.PixelFormat{pipeline.UYVY, pipeline.RGB24, pipeline.I420, pipeline.NV12, pipeline.MJPEG}
}

// outputs returns the pixel formats that a stage makes.
func outputs() []pipeline.PixelFormat {
	return []pipeline.PixelFormat{pipeline.UYVY, pipeline.RGB24, pipeline.I420, pipeline.NV12, pipeline.Grey}
}

// Needs implements pipeline.Stage.
func (s *Stage) Needs(pipeline.Format) (pipeline.StageNeeds, error) {
	return pipeline.StageNeeds{}, nil
}

// CheckInput returns nil if a stage converts frames of format f, or an error that wraps ErrUnsupported.
func CheckInput(f pipeline.Format) error {
	if err := f.Validate(); err != nil {
		return fmt.Errorf("convert: input: %w", err)
	}
	bad := func(why string) error {
		return fmt.Errorf("%w: input %s: %s", ErrUnsupported, f, why)
	}
	switch {
	case !slices.Contains(Inputs(), f.Pixel):
		return bad(fmt.Sprintf("must be one of %s", Inputs()))
	case f.Memory != pipeline.MemoryHost:
		return bad("the CPU cannot read it: take ordinary host memory")
	case f.PacketPitch != 0:
		return bad("packet-ready")
	case f.Width%2 != 0 || f.Height%2 != 0:
		return bad("width and height must be even")
	case f.Color == pipeline.ColorNone || f.Color > pipeline.BT601Limited:
		return bad("no colorimetry of pictures")
	case f.Pixel == pipeline.RGB24 && f.Color != pipeline.BT709Full && f.Color != pipeline.BT601Full:
		return bad("R'G'B' must have the full range")
	}
	return nil
}

// Plan accepts as input the pixels of Inputs, of even width and height, in memory that the CPU may read, and as outputs
// UYVY, RGB24, I420, NV12 and Grey in host memory, of any colorimetry, at full, half and quarter size, UYVY, RGB24 and
// Grey packet-ready, too. Errors wrap ErrUnsupported or pipeline.ErrFormat. After Close the error is ErrClosed.
func (s *Stage) Plan(in pipeline.Format, want []pipeline.Format) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if err := CheckInput(in); err != nil {
		return err
	}
	var outs []*output
	for i, f := range want {
		o, err := newOutput(in, f)
		if err != nil {
			return fmt.Errorf("output %d: %w", i, err)
		}
		outs = append(outs, o)
	}
	if in.Pixel == pipeline.MJPEG && s.decoder == nil {
		var slow error
		if s.decoder, slow = codec.NewMJPEG(); slow != nil {
			s.config.Logger.Warn("JPEG is decoded by a slow decoder", "reason", slow)
		}
	}
	s.in, s.outs, s.scratch = in, outs, nil
	for range s.config.Workers {
		s.scratch = append(s.scratch, newScratch(in.Width))
	}
	return nil
}

// newOutput returns what is known about an output before its frames come.
func newOutput(in, f pipeline.Format) (*output, error) {
	if err := f.Validate(); err != nil {
		return nil, fmt.Errorf("convert: %w", err)
	}
	o := &output{format: f, by: in.Width / f.Width}
	bad := func(why string) error {
		return fmt.Errorf("%w: cannot make %s from %s %dx%d: %s; it makes %s, whole and at half and quarter size",
			ErrUnsupported, f, in.Pixel, in.Width, in.Height, why, outputs())
	}
	switch {
	case !slices.Contains(outputs(), f.Pixel):
		return nil, bad("unknown layout")
	case o.by != 1 && o.by != 2 && o.by != 4 || f.Width*o.by != in.Width || f.Height*o.by != in.Height:
		return nil, bad("neither the size of the whole picture nor a half or a quarter of it")
	case f.Width%2 != 0 || f.Height%2 != 0:
		return nil, bad("width and height must be even")
	case f.Color == pipeline.ColorNone || f.Color > pipeline.BT601Limited:
		return nil, bad("no colorimetry of pictures")
	case f.Memory == pipeline.MemoryDevice:
		return nil, bad("the CPU cannot write it")
	}
	from := in.Color
	if in.Pixel == pipeline.RGB24 {
		from = pipeline.BT709Full // as which its pixels are read
	}
	o.recolour(from)
	o.payload = f.Pixel.LineBytes(f.Width)
	if f.PacketPitch > 0 {
		o.payload = f.PacketPitch - f.HeaderGap
	}
	return o, nil
}

// check returns an error unless the frames match the plan. s.mu must be held.
func (s *Stage) check(in *pipeline.Frame, outs []*pipeline.Frame) error {
	if len(outs) != len(s.outs) {
		return fmt.Errorf("%w: %d outputs, planned %d", ErrMismatch, len(outs), len(s.outs))
	}
	if err := in.CheckFormat(s.in); err != nil {
		return fmt.Errorf("%w: input %w", ErrMismatch, err)
	}
	for i, out := range outs {
		if out == nil {
			continue
		}
		if err := out.CheckFormat(s.outs[i].format); err != nil {
			return fmt.Errorf("%w: output %d %w", ErrMismatch, i, err)
		}
	}
	return nil
}

// Process makes outs from in; both must have the formats of the last Plan. Elements of outs may be nil. Process returns
// when all bytes are written. An error wraps ErrMismatch, ErrClosed, codec.ErrDecode or ctx.Err().
func (s *Stage) Process(ctx context.Context, in *pipeline.Frame, outs []*pipeline.Frame) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if err := s.check(in, outs); err != nil {
		return err
	}
	p, err := s.picture(in)
	if err != nil {
		return fmt.Errorf("frame %d: %w", in.Sequence, err)
	}
	for i, out := range outs {
		if out != nil {
			s.make(s.outs[i], p, out.Bytes)
			out.Times.Processed = time.Now()
		}
	}
	return nil
}

// picture returns the lines of a frame. It decodes JPEG files.
func (s *Stage) picture(in *pipeline.Frame) (picture, error) {
	f := in.Format
	luma, stride := f.Stride*f.Height, f.Stride
	switch f.Pixel {
	case pipeline.UYVY:
		return &packed{in.Bytes, stride, unpackUYVY}, nil
	case pipeline.RGB24:
		return &packed{in.Bytes, stride, unpackRGB}, nil
	case pipeline.NV12:
		return &semiplanar{in.Bytes[:luma], in.Bytes[luma:], stride}, nil
	case pipeline.I420:
		return &planar{y: in.Bytes[:luma], cb: in.Bytes[luma:], cr: in.Bytes[luma+luma/4:], stride: stride, chroma: stride / 2, down: 2, across: 2}, nil
	}
	img := &s.decoded
	if err := s.decoder.Decode(img, in.Bytes, f.Width, f.Height); err != nil {
		return nil, err
	}
	p := &planar{y: img.Y, cb: img.Cb, cr: img.Cr, stride: img.YStride, chroma: img.CStride, down: 1, across: 1}
	switch img.SubsampleRatio {
	case image.YCbCrSubsampleRatio422:
		p.across = 2
	case image.YCbCrSubsampleRatio420:
		p.down, p.across = 2, 2
	case image.YCbCrSubsampleRatio440:
		p.down = 2
	case image.YCbCrSubsampleRatio411:
		p.across = 4
	case image.YCbCrSubsampleRatio410:
		p.down, p.across = 2, 4
	}
	return p, nil
}

// bandPairs is the number of pairs of output lines that a worker makes at a time.
const bandPairs = 8

// make makes an output from a picture, by all workers.
func (s *Stage) make(o *output, p picture, to []byte) {
	pairs := o.format.Height / 2
	var next atomic.Int64
	work := func(w *scratch) {
		for {
			begin := int(next.Add(bandPairs)) - bandPairs
			if begin >= pairs {
				return
			}
			for i := begin; i < min(begin+bandPairs, pairs); i++ {
				o.makePair(w, p, i, to)
			}
		}
	}
	var all sync.WaitGroup
	for _, w := range s.scratch[1:] {
		all.Go(func() { work(w) })
	}
	work(s.scratch[0])
	all.Wait()
}

// Close frees the decoder. Further calls do nothing.
func (s *Stage) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if s.closed = true; s.decoder == nil {
		return nil
	}
	return s.decoder.Close()
}
