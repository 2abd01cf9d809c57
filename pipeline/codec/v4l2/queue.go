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
)

// A queue is one of a device's two queues: of pictures, or of coded data.
type queue struct {
	kind    uint32
	pixels  uint32 // format, a four-character code
	planes  []planeFormat
	width   int
	height  int        // lines of luma, including the device's padding
	buffers [][][]byte // the memory of each buffer's planes
}

// pictureFormats are the picture formats that I420 can be converted to, best first: in one piece, in three planes, and
// with interleaved chroma in one piece or in two planes.
var pictureFormats = []uint32{fourcc("YU12"), fourcc("YM12"), fourcc("NV12"), fourcc("NM12")}

// agree sets the format of the coded data, then that of the pictures, and crops the pictures to the encoder's size.
func (e *Encoder) agree() error {
	if err := e.setFormat(&e.coded, e.coding, uint32(max(e.format.Size(), 1<<16))); err != nil {
		return err
	}
	offered := []uint32{fourcc("YM12")} // NVIDIA's documentation has it for all encoders, and no call that lists formats
	if !e.node.nvidia() {
		offered = e.offered(&e.pictures)
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
	s := &selection{kind: singlePicture, width: int32(e.format.Width), height: int32(e.format.Height)} // the same type for both interfaces
	err := e.node.ioctl(setSelection, unsafe.Pointer(s))
	if err != nil || int(s.width) != e.format.Width || int(s.height) != e.format.Height {
		return e.errorf("%w: it codes %dx%d instead of %dx%d: give the picture another size, for instance a multiple of 16", codec.ErrFormat,
			e.pictures.width, e.pictures.height, e.format.Width, e.format.Height)
	}
	return nil
}

func names(codes []uint32) (list []string) {
	for _, c := range codes {
		list = append(list, letters(c))
	}
	return list
}

// offered returns the formats that a queue supports.
func (e *Encoder) offered(q *queue) (list []uint32) {
	for i := range uint32(64) {
		d := &formatDescription{index: i, kind: q.kind}
		if e.node.ioctl(listFormats, unsafe.Pointer(d)) != nil {
			break
		}
		list = append(list, d.pixels)
	}
	return list
}

// setFormat sets the format of a queue, with the picture size of the stream. size is the size of a buffer of coded data
// in bytes, or 0 for pictures.
func (e *Encoder) setFormat(q *queue, code, size uint32) error {
	f := &e.args.format
	*f = format{kind: q.kind}
	w, h := uint32(e.format.Width), uint32(e.format.Height)
	colors, matrix, span := e.colors()
	if e.multi {
		m := f.multi()
		*m = multiFormat{width: w, height: h, pixels: code, field: fieldNone, colors: colors, matrix: uint8(matrix), quantization: uint8(span)}
		m.count = planeCount(code)
		m.planes[0].size = size
	} else {
		*f.single() = singleFormat{
			width: w, height: h, pixels: code, field: fieldNone, size: size, colors: colors, private: hasPrivate, matrix: matrix, quantization: span,
		}
	}
	if err := e.node.ioctl(setFormat, unsafe.Pointer(f)); err != nil {
		return e.errorf("%w: %s of %dx%d: %w", codec.ErrFormat, letters(code), w, h, err)
	}
	got := queue{kind: q.kind}
	if e.multi {
		m := f.multi()
		got.pixels, got.width, got.height = m.pixels, int(m.width), int(m.height)
		got.planes = slices.Clone(m.planes[:min(m.count, maxPlanes)])
	} else {
		s := f.single()
		got.pixels, got.width, got.height = s.pixels, int(s.width), int(s.height)
		got.planes = []planeFormat{{size: s.size, stride: s.stride}}
	}
	switch {
	case got.pixels != code:
		return e.errorf("%w: it makes or takes %s and no %s", codec.ErrFormat, letters(got.pixels), letters(code))
	case got.width < e.format.Width || got.height < e.format.Height || len(got.planes) == 0:
		return e.errorf("%w: at most %dx%d, not %dx%d", codec.ErrFormat, got.width, got.height, e.format.Width, e.format.Height)
	}
	*q = got
	return nil
}

// planeCount returns the number of planes of a format in separate memory.
func planeCount(code uint32) uint8 {
	switch letters(code) {
	case "YM12":
		return 3
	case "NM12":
		return 2
	}
	return 1
}

// colors returns the stream's colorimetry as V4L2 values.
func (e *Encoder) colors() (space, matrix, span uint32) {
	space, matrix, span = colorsREC709, matrixOf709, limitedRange
	switch e.format.Color {
	case pipeline.BT601Full, pipeline.BT601Limited:
		space, matrix = colorsSMPTE170M, matrixOf601
	}
	switch e.format.Color {
	case pipeline.BT601Full, pipeline.BT709Full:
		span = fullRange
	}
	return space, matrix, span
}

// pace tells the device the frame rate, if it supports that.
func (e *Encoder) pace() {
	r := &outputRate{kind: e.pictures.kind, numerator: uint32(e.format.Rate.Den), denominator: uint32(e.format.Rate.Num)}
	_ = e.node.ioctl(setRate, unsafe.Pointer(r))
}

// count is the number of buffers requested for a queue: the most that devices require for one picture at a time.
const count = 2

// allocate allocates a queue's buffers and maps them.
func (e *Encoder) allocate(q *queue) error {
	r := &requestBuffers{count: count, kind: q.kind, memory: memoryMapped}
	if err := e.node.ioctl(makeBuffers, unsafe.Pointer(r)); err != nil || r.count == 0 {
		return e.errorf("%d buffers of %s: %w", r.count, letters(q.pixels), errors.Join(err, errNone(r.count)))
	}
	for i := range int(r.count) {
		q.buffers = append(q.buffers, nil)
		b := e.buffer(q, i)
		if err := e.node.ioctl(queryBuffer, unsafe.Pointer(b)); err != nil {
			return e.errorf("buffer %d: %w", i, err)
		}
		for k := range q.planes {
			offset, length := int64(b.at), int(b.length)
			if e.multi {
				offset, length = int64(e.args.planes[k].at), int(e.args.planes[k].length)
			}
			if length < int(q.planes[k].size) {
				return e.errorf("buffer %d has %d bytes of %d", i, length, q.planes[k].size)
			}
			m, err := e.node.mmap(planeOf{q.kind, uint32(i), uint32(k)}, offset, length)
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
func (e *Encoder) buffer(q *queue, i int) *buffer {
	b := &e.args.buffer
	*b = buffer{index: uint32(i), kind: q.kind, memory: memoryMapped, field: fieldNone}
	if e.multi {
		e.args.planes = [maxPlanes]plane{}
		b.at, b.length = uint64(uintptr(unsafe.Pointer(&e.args.planes))), uint32(len(q.planes))
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
		b.flags, b.seconds, b.microseconds = flagStamp, e.taken/1e6, e.taken%1e6 // the device copies it to the coded data
		b.used = q.planes[0].size
		for k, m := range q.buffers[i] {
			e.args.planes[k].used, e.args.planes[k].length = e.used(q, k), uint32(len(m))
			if err := e.node.sync(k, m); err != nil {
				return err
			}
		}
	}
	err := e.node.ioctl(enqueue, unsafe.Pointer(b))
	runtime.KeepAlive(e)
	return err
}

// used returns the number of bytes of a plane of a picture: what the device has asked for. NVIDIA's counts the lines
// (read_video_frame in NvUtils.cpp of its samples) and not what is behind them.
func (e *Encoder) used(q *queue, plane int) uint32 {
	switch p := q.planes[plane]; {
	case !e.node.nvidia():
		return p.size
	case plane == 0:
		return p.stride * uint32(e.format.Height)
	default:
		return p.stride * uint32(e.format.Height/2)
	}
}

// dequeue returns the index of a buffer that the device has finished; e.args.buffer and e.args.planes describe its
// contents. If there is none, it waits for one, at most until the given time, and then returns an error.
func (e *Encoder) dequeue(q *queue, until time.Time) (int, error) {
	for {
		b := e.buffer(q, 0)
		err := e.node.ioctl(dequeue, unsafe.Pointer(b))
		switch {
		case err == nil && int(b.index) < len(q.buffers):
			return int(b.index), nil
		case err == nil:
			return 0, fmt.Errorf("the device returned buffer %d of %d", b.index, len(q.buffers))
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
		errs = append(errs, e.node.ioctl(streamOff, unsafe.Pointer(&e.args.kind)))
	}
	for _, planes := range q.buffers {
		for _, m := range planes {
			errs = append(errs, e.node.munmap(m))
		}
	}
	if len(q.buffers) > 0 {
		errs = append(errs, e.node.ioctl(makeBuffers, unsafe.Pointer(&requestBuffers{kind: q.kind, memory: memoryMapped})))
	}
	q.buffers = nil
	return errors.Join(errs...)
}
