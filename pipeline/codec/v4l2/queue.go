// SPDX-License-Identifier: Apache-2.0

package v4l2

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/codec"
	"github.com/tegracast/tegracast/pipeline/videodev"
)

// A queue is one of a device's two queues: of pictures, or of coded data.
type queue struct {
	kind    uint32
	pixels  uint32 // format, a four-character code
	planes  []videodev.PlaneFormat
	width   int
	height  int        // lines of luma, including the device's padding
	buffers [][][]byte // the memory of each buffer's planes
}

// pictureFormats are the picture formats that I420 can be converted to, best first: in one piece, in three planes, and
// with interleaved chroma in one piece or in two planes.
var pictureFormats = []uint32{videodev.Code("YU12"), videodev.Code("YM12"), videodev.Code("NV12"), videodev.Code("NM12")}

// agree sets the format of the coded data, then that of the pictures, and crops the pictures to the encoder's size.
func (e *Encoder) agree() error {
	if err := e.setFormat(&e.coded, e.coding, uint32(max(e.format.Size(), 1<<16))); err != nil {
		return err
	}
	offered := []uint32{videodev.Code("YM12")} // NVIDIA's documentation has it for all encoders, and no call that lists formats
	if !e.node.nvidia() {
		offered = videodev.Codes(e.node, e.pictures.kind)
	}
	i := slices.IndexFunc(pictureFormats, func(code uint32) bool { return slices.Contains(offered, code) })
	if i < 0 {
		return e.errorf("%w: it takes %q, and no 4:2:0 of 8 bits", codec.ErrFormat, names(offered))
	}
	if err := e.setFormat(&e.pictures, pictureFormats[i], 0); err != nil {
		return err
	}
	if e.pictures.width == e.format.Width && e.pictures.height == e.format.Height {
		return nil
	}
	s := &videodev.Selection{Type: videodev.Output, Width: int32(e.format.Width), Height: int32(e.format.Height)} // the same type for both interfaces
	err := e.node.Ioctl(videodev.SetSelection, unsafe.Pointer(s))
	if err != nil || int(s.Width) != e.format.Width || int(s.Height) != e.format.Height {
		return e.errorf("%w: it codes %dx%d instead of %dx%d: give the picture another size, for instance a multiple of 16", codec.ErrFormat,
			e.pictures.width, e.pictures.height, e.format.Width, e.format.Height)
	}
	return nil
}

func names(codes []uint32) (list []string) {
	for _, c := range codes {
		list = append(list, videodev.Letters(c))
	}
	return list
}

// setFormat sets the format of a queue, with the picture size of the stream. size is the size of a buffer of coded data
// in bytes, or 0 for pictures.
func (e *Encoder) setFormat(q *queue, code, size uint32) error {
	f := &e.args.format
	*f = videodev.Format{Type: q.kind}
	w, h := uint32(e.format.Width), uint32(e.format.Height)
	colors, matrix, span := e.colors()
	if e.multi {
		m := f.Multi()
		*m = videodev.MultiFormat{
			Width: w, Height: h, Pixels: code, Field: videodev.FieldNone, Colors: colors, Matrix: uint8(matrix), Quantization: uint8(span),
		}
		m.Count = planeCount(code)
		m.Planes[0].Size = size
	} else {
		*f.Single() = videodev.SingleFormat{
			Width: w, Height: h, Pixels: code, Field: videodev.FieldNone, Size: size,
			Colors: colors, Private: videodev.HasPrivate, Matrix: matrix, Quantization: span,
		}
	}
	if err := e.node.Ioctl(videodev.SetFormat, unsafe.Pointer(f)); err != nil {
		return e.errorf("%w: %s of %dx%d: %w", codec.ErrFormat, videodev.Letters(code), w, h, err)
	}
	got := queue{kind: q.kind}
	if e.multi {
		m := f.Multi()
		got.pixels, got.width, got.height = m.Pixels, int(m.Width), int(m.Height)
		got.planes = slices.Clone(m.Planes[:min(m.Count, videodev.MaxPlanes)])
	} else {
		s := f.Single()
		got.pixels, got.width, got.height = s.Pixels, int(s.Width), int(s.Height)
		got.planes = []videodev.PlaneFormat{{Size: s.Size, Stride: s.Stride}}
	}
	switch {
	case got.pixels != code:
		return e.errorf("%w: it makes or takes %s and no %s", codec.ErrFormat, videodev.Letters(got.pixels), videodev.Letters(code))
	case got.width < e.format.Width || got.height < e.format.Height || len(got.planes) == 0:
		return e.errorf("%w: at most %dx%d, not %dx%d", codec.ErrFormat, got.width, got.height, e.format.Width, e.format.Height)
	}
	*q = got
	return nil
}

// planeCount returns the number of planes of a format in separate memory.
func planeCount(code uint32) uint8 {
	switch videodev.Letters(code) {
	case "YM12":
		return 3
	case "NM12":
		return 2
	}
	return 1
}

// colors returns the stream's colorimetry as V4L2 values.
func (e *Encoder) colors() (space, matrix, span uint32) {
	space, matrix, span = videodev.ColorsREC709, videodev.MatrixOf709, videodev.LimitedRange
	switch e.format.Color {
	case pipeline.BT601Full, pipeline.BT601Limited:
		space, matrix = videodev.ColorsSMPTE170M, videodev.MatrixOf601
	}
	switch e.format.Color {
	case pipeline.BT601Full, pipeline.BT709Full:
		span = videodev.FullRange
	}
	return space, matrix, span
}

// pace tells the device the frame rate, if it supports that.
func (e *Encoder) pace() {
	r := &videodev.StreamParameters{Type: e.pictures.kind, Numerator: uint32(e.format.Rate.Den), Denominator: uint32(e.format.Rate.Num)}
	_ = e.node.Ioctl(videodev.SetParameters, unsafe.Pointer(r))
}

// count is the number of buffers requested for a queue: the most that devices require for one picture at a time.
const count = 2

// allocate allocates a queue's buffers and maps them.
func (e *Encoder) allocate(q *queue) error {
	r := &videodev.RequestBuffers{Count: count, Type: q.kind, Memory: videodev.MemoryMapped}
	if err := e.node.Ioctl(videodev.MakeBuffers, unsafe.Pointer(r)); err != nil || r.Count == 0 {
		return e.errorf("%d buffers of %s: %w", r.Count, videodev.Letters(q.pixels), errors.Join(err, errNone(r.Count)))
	}
	for i := range int(r.Count) {
		q.buffers = append(q.buffers, nil)
		b := e.buffer(q, i)
		if err := e.node.Ioctl(videodev.QueryBuffer, unsafe.Pointer(b)); err != nil {
			return e.errorf("buffer %d: %w", i, err)
		}
		for k := range q.planes {
			offset, length := int64(b.At), int(b.Length)
			if e.multi {
				offset, length = int64(e.args.planes[k].At), int(e.args.planes[k].Length)
			}
			if length < int(q.planes[k].Size) {
				return e.errorf("buffer %d has %d bytes of %d", i, length, q.planes[k].Size)
			}
			m, err := e.node.mmap(videodev.PlaneOf{Type: q.kind, Index: uint32(i), Plane: uint32(k)}, offset, length)
			if err != nil {
				return e.errorf("buffer %d: mmap of %d bytes: %w", i, length, err)
			}
			q.buffers[i] = append(q.buffers[i], m)
		}
	}
	return nil
}

func errNone(n uint32) error {
	if n == 0 {
		return unix.ENOMEM
	}
	return nil
}

// buffer returns the struct that identifies buffer i in calls. The next call of buffer overwrites it.
func (e *Encoder) buffer(q *queue, i int) *videodev.Buffer {
	b := &e.args.buffer
	*b = videodev.Buffer{Index: uint32(i), Type: q.kind, Memory: videodev.MemoryMapped, Field: videodev.FieldNone}
	if e.multi {
		e.args.planes = [videodev.MaxPlanes]videodev.Plane{}
		b.At, b.Length = uint64(uintptr(unsafe.Pointer(&e.args.planes))), uint32(len(q.planes))
	}
	return b
}

// enqueue passes a buffer to the device: one to be filled with coded data or, with a picture in it, one to be encoded.
func (e *Encoder) enqueue(q *queue, i int, f *pipeline.Frame) error {
	b := e.buffer(q, i)
	if f != nil {
		if err := q.fill(q.buffers[i], f); err != nil {
			return err
		}
		b.Flags, b.Seconds, b.Microseconds = videodev.FlagStampCopy, e.taken/1e6, e.taken%1e6 // the device copies it to the coded data
		b.Used = q.planes[0].Size
		for k, m := range q.buffers[i] {
			e.args.planes[k].Used, e.args.planes[k].Length = e.used(q, k), uint32(len(m))
			if err := e.node.sync(k, m); err != nil {
				return err
			}
		}
	}
	err := e.node.Ioctl(videodev.Enqueue, unsafe.Pointer(b))
	runtime.KeepAlive(e)
	return err
}

// used returns the number of bytes of a plane of a picture: what the device has asked for. NVIDIA's counts the lines
// (read_video_frame in NvUtils.cpp of its samples) and not what is behind them.
func (e *Encoder) used(q *queue, plane int) uint32 {
	switch p := q.planes[plane]; {
	case !e.node.nvidia():
		return p.Size
	case plane == 0:
		return p.Stride * uint32(e.format.Height)
	default:
		return p.Stride * uint32(e.format.Height/2)
	}
}

// dequeue returns the index of a buffer that the device has finished; e.args.buffer and e.args.planes describe its
// contents. If there is none, it waits for one, at most until the given time, and then returns an error.
func (e *Encoder) dequeue(q *queue, until time.Time) (int, error) {
	for {
		b := e.buffer(q, 0)
		err := e.node.Ioctl(videodev.Dequeue, unsafe.Pointer(b))
		switch {
		case err == nil && int(b.Index) < len(q.buffers):
			return int(b.Index), nil
		case err == nil:
			return 0, fmt.Errorf("the device returned buffer %d of %d", b.Index, len(q.buffers))
		case !errors.Is(err, unix.EAGAIN):
			return 0, err
		case time.Now().After(until):
			return 0, fmt.Errorf("the device has returned nothing for %v", patience)
		}
		if err := e.node.wait(q == &e.coded, time.Until(until)); err != nil {
			return 0, err
		}
	}
}

// release stops a queue and frees its buffers.
func (e *Encoder) release(q *queue) error {
	var errs []error
	if len(q.buffers) > 0 {
		e.args.kind = int32(q.kind)
		errs = append(errs, e.node.Ioctl(videodev.StreamOff, unsafe.Pointer(&e.args.kind)))
	}
	for _, planes := range q.buffers {
		for _, m := range planes {
			errs = append(errs, e.node.munmap(m))
		}
	}
	if len(q.buffers) > 0 {
		errs = append(errs, e.node.Ioctl(videodev.MakeBuffers, unsafe.Pointer(&videodev.RequestBuffers{Type: q.kind, Memory: videodev.MemoryMapped})))
	}
	q.buffers = nil
	return errors.Join(errs...)
}
