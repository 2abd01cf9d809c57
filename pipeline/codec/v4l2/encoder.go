// SPDX-License-Identifier: Apache-2.0

package v4l2

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/codec"
	"github.com/tegracast/tegracast/pipeline/videodev"
)

// patience is the maximum time that a device may take to encode a picture, or to drain.
const patience = 5 * time.Second

// ErrEncode means that a picture was not encoded.
var ErrEncode = errors.New("not encoded")

// errNotServed means that NVIDIA's library has no encoder for a device file that it has one for on other boards.
var errNotServed = errors.New(nvidiaLibrary + " does not provide an encoder here (on Thor it is reachable only through CUDA): " +
	"remove encoder, so that openh264 encodes, or use payload jpeg or raw")

// An Encoder encodes pictures of one format on a device. It is not safe for concurrent use.
type Encoder struct {
	node     node
	path     string
	format   pipeline.Format
	coding   uint32 // format that the device produces, a four-character code
	multi    bool   // multi-planar interface
	pictures queue
	coded    queue
	sps, pps []byte
	taken    int64 // number of pictures
	askKey   bool  // the next picture must be a key frame, because an earlier one was lost
	bitrate  int
	open     func() (node, error) // opens the device again; nil: not supported
	broken   error                // error after which the device must be reopened; nil: it works
	since    time.Time            // time of the failure, or of the last attempt to reopen the device
	args     args
}

// args holds what the device reads and writes during a call. It is on the heap, where it does not move.
type args struct {
	format   videodev.Format
	buffer   videodev.Buffer
	planes   [videodev.MaxPlanes]videodev.Plane
	control  videodev.Control
	controls videodev.ControlList
	kind     int32
}

// New opens the encoder at a device file, for I420 pictures of format f. bitrate is in bits per second. The caller must
// close the encoder. Errors wrap codec.ErrFormat, or are those of the device, which may lack something that is needed.
func New(path string, f pipeline.Format, bitrate int) (*Encoder, error) {
	if err := codec.CheckH264(f); err != nil {
		return nil, err
	}
	e, err := opened(func() (node, error) { return open(path) }, path, f, bitrate)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// opened opens an H.264 encoder, starts it, and gets its parameter sets.
func opened(open func() (node, error), path string, f pipeline.Format, bitrate int) (*Encoder, error) {
	n, err := open()
	if err != nil {
		return nil, err
	}
	e, err := newEncoder(n, path, f, h264, bitrate)
	if err == nil {
		err = e.startDevice()
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	e.open = open
	return e, nil
}

func open(path string) (node, error) {
	if isNVIDIA(path) {
		return openThrough(nvidiaLibrary, surfaceLibrary, path)
	}
	return openKernel(path)
}

// newEncoder negotiates the formats and, if bitrate is not 0, sets the H.264 controls; then it allocates buffers
// (dev-encoder.rst, Initialization). Close frees the returned Encoder even if there is an error.
func newEncoder(n node, path string, f pipeline.Format, coding uint32, bitrate int) (*Encoder, error) {
	e := &Encoder{node: n, path: path, format: f, coding: coding}
	if err := e.recognize(); err != nil {
		return e, err
	}
	if err := e.agree(); err != nil {
		return e, err
	}
	if bitrate != 0 {
		if err := e.control(bitrate); err != nil {
			return e, err
		}
	}
	e.pace()
	for _, q := range []*queue{&e.coded, &e.pictures} {
		if err := e.allocate(q); err != nil {
			return e, err
		}
	}
	return e, nil
}

// recognize checks that the device can be an encoder, and selects its multi-planar interface if it has one.
func (e *Encoder) recognize() error {
	c := &videodev.Capability{}
	switch err := e.node.Ioctl(videodev.QueryCapabilities, unsafe.Pointer(c)); {
	case err != nil && e.node.nvidia() && (errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EINVAL)):
		return e.errorf("%w: %w", errNotServed, err)
	case err != nil:
		return e.errorf("it is no device of V4L2: %w", err)
	}
	can := c.Can()
	e.multi = can&videodev.CanMulti != 0
	switch {
	case can&(videodev.CanMulti|videodev.CanSingle) == 0 || can&videodev.CanStream == 0 && !e.node.nvidia(): // NVIDIA's samples do not ask for it
		return e.errorf("it is not a memory-to-memory device, as an encoder is (capabilities %#x)", can)
	case e.multi:
		e.pictures.kind, e.coded.kind = videodev.OutputMulti, videodev.CaptureMulti
	default:
		e.pictures.kind, e.coded.kind = videodev.Output, videodev.Capture
	}
	return nil
}

// control sets the H.264 controls. Devices differ in what they support: only the bit rate is required here, and later
// that key frames can be forced.
func (e *Encoder) control(bitrate int) error {
	for _, c := range [][2]int{
		{controlMode, modeConstant},
		{controlByFrame, 1},
		{controlBFrames, 0},
		{controlGOP, longest},
		{controlPeriod, longest},
		{controlIDR, longest},
		{controlLevel, level(e.format)},
		{controlHeaders, headersJoined},
		{controlSets, 1},
	} {
		_ = e.set(uint32(c[0]), c[1])
	}
	if e.set(controlProfile, profileConstrained) != nil {
		_ = e.set(controlProfile, profileBaseline) // NVIDIA's documentation has no other one without CABAC
	}
	return e.SetBitrate(bitrate)
}

// level returns the lowest level for a format, or 5.2 if no lower one is sufficient, as V4L2 numbers the levels (H.264
// table A-1: blocks per picture, blocks per second).
func level(f pipeline.Format) int {
	blocks := (f.Width + 15) / 16 * ((f.Height + 15) / 16)
	rate := blocks * f.Rate.Num / max(f.Rate.Den, 1)
	for _, l := range [][3]int{
		{level30, 1620, 40500}, {9, 3600, 108000}, {10, 5120, 216000}, {11, 8192, 245760}, {13, 8704, 522240}, {14, 22080, 589824}, {15, 36864, 983040},
	} {
		if blocks <= l[1] && rate <= l[2] {
			return l[0]
		}
	}
	return level52
}

// startDevice starts the device, and gets the parameter sets by encoding a picture that is discarded.
func (e *Encoder) startDevice() error {
	if err := e.start(); err != nil {
		return err
	}
	grey := &pipeline.Frame{Format: e.format, Bytes: make([]byte, e.format.Size())}
	for i := range grey.Bytes {
		grey.Bytes[i] = 0x80
	}
	unit, err := e.Encode(make([]byte, 0, 4*e.format.Size()), grey, true)
	if err != nil {
		return err
	}
	if e.sps, e.pps = sets(unit); e.sps == nil || e.pps == nil {
		return e.errorf("%w: no parameter sets in its first unit", ErrEncode)
	}
	return nil
}

// set sets a control.
func (e *Encoder) set(id uint32, value int) error {
	e.args.control = videodev.Control{ID: id, Value: [2]uint32{uint32(int32(value))}}
	e.args.controls = videodev.ControlList{Which: codecClass, Count: 1, List: uintptr(unsafe.Pointer(&e.args.control))}
	return e.node.Ioctl(videodev.SetControls, unsafe.Pointer(&e.args.controls))
}

// start makes the device accept pictures.
func (e *Encoder) start() error {
	if e.node.nvidia() { // as its samples do: the end of the coded data is an event of V4L2
		if err := e.node.Ioctl(videodev.Subscribe, unsafe.Pointer(&videodev.Subscription{Type: videodev.EventEnd})); err != nil {
			return e.errorf("its end-of-stream event: %w", err)
		}
	}
	for i := range e.coded.buffers {
		if err := e.enqueue(&e.coded, i, nil); err != nil {
			return e.errorf("a buffer for coded data: %w", err)
		}
	}
	for _, q := range []*queue{&e.pictures, &e.coded} {
		e.args.kind = int32(q.kind)
		if err := e.node.Ioctl(videodev.StreamOn, unsafe.Pointer(&e.args.kind)); err != nil {
			return e.errorf("it does not start: %w", err)
		}
	}
	return nil
}

// ParameterSets returns the SPS and the PPS of the stream, without start codes. They must not be changed.
func (e *Encoder) ParameterSets() (sps, pps []byte) { return e.sps, e.pps }

// SetBitrate changes the bit rate, in bits per second, of the pictures that follow.
func (e *Encoder) SetBitrate(bits int) error {
	if err := e.set(controlBitrate, bits); err != nil {
		return e.errorf("bit rate %d: %w", bits, err)
	}
	e.bitrate = bits
	return nil
}

// Encode appends f's picture to dst as an H.264 byte stream (Annex B), like codec.H264. It waits for the device. Errors
// about a picture wrap ErrEncode, or codec.ErrFormat if f has another format than the encoder. If the device does not
// answer within five seconds, or fails otherwise, the first Encode at least one second later reopens it; until then all
// pictures fail.
func (e *Encoder) Encode(dst []byte, f *pipeline.Frame, key bool) ([]byte, error) {
	if f.Format.Pixel != e.format.Pixel || f.Format.Width != e.format.Width || f.Format.Height != e.format.Height || len(f.Bytes) < f.Format.Size() {
		return dst, fmt.Errorf("%w: frame %d: %d bytes of %s", codec.ErrFormat, f.Sequence, len(f.Bytes), f.Format)
	}
	if err := e.revive(); err != nil {
		return dst, err
	}
	key = key || e.askKey
	if key {
		if err := e.forceKey(); err != nil {
			return dst, e.errorf("key frame: %w", err)
		}
	}
	unit, index, err := e.code(f)
	switch {
	case errors.Is(err, errDamaged):
		e.askKey = true
		err = fmt.Errorf("%w: frame %d: %s could not encode it", ErrEncode, f.Sequence, e.path)
	case err != nil:
		e.broken, e.since = e.errorf("%w: frame %d: %w", ErrEncode, f.Sequence, err), time.Now()
		return dst, e.broken
	case len(unit)+len(e.sps)+len(e.pps)+8 > cap(dst)-len(dst):
		e.askKey = true
		err = fmt.Errorf("%w: frame %d: more than %d bytes", ErrEncode, f.Sequence, cap(dst))
	default:
		if e.askKey = false; key && e.sps != nil && !hasSets(unit) {
			dst = append(append(append(append(dst, startCode...), e.sps...), startCode...), e.pps...)
		}
		dst = append(dst, unit...)
	}
	if index >= 0 {
		if lost := e.enqueue(&e.coded, index, nil); lost != nil {
			e.broken, e.since = e.errorf("%w: its buffer cannot be given back: %w", ErrEncode, lost), time.Now()
		}
	}
	return dst, err
}

// again is the minimum time from a failure, or from an attempt to reopen the device, to the next attempt.
const again = time.Second

// revive reopens a device that has failed, unless the failure or the last attempt to reopen it was less than the
// duration again ago. It returns an error if the device is still not usable.
func (e *Encoder) revive() error {
	switch {
	case e.broken == nil:
		return nil
	case e.open == nil || time.Since(e.since) < again:
		return e.broken
	}
	e.since = time.Now()
	_ = e.Close() // nothing of it is needed any more
	next, err := opened(e.open, e.path, e.format, e.bitrate)
	if err != nil {
		e.node = gone{}
		return fmt.Errorf("%w: reopening: %w", e.broken, err)
	}
	*e = *next
	e.askKey = true
	return nil
}

// forceKey requests a key frame, through the kernel's control or that of older devices, among them NVIDIA's.
func (e *Encoder) forceKey() error {
	if e.node.nvidia() {
		return e.set(controlForceOld, 1)
	}
	err := e.set(controlForceKey, 1)
	if err != nil && e.set(controlForceOld, 1) == nil {
		return nil
	}
	return err
}

// errDamaged means that the device could not encode a picture.
var errDamaged = errors.New("the picture is damaged")

// code encodes a picture on the device. unit is usually memory of buffer index, which must be enqueued again after unit
// has been read; index is -1 if there is no such buffer. If the error is errDamaged, unit is nil, but the buffer must
// be enqueued again too. Whatever the device delivers before the picture itself, such as parameter sets, is prepended
// to unit.
func (e *Encoder) code(f *pipeline.Frame) (unit []byte, index int, err error) {
	e.taken++
	if err := e.enqueue(&e.pictures, 0, f); err != nil {
		return nil, -1, err
	}
	var before []byte
	for until := time.Now().Add(patience); ; {
		if index, err = e.dequeue(&e.coded, until); err != nil {
			return nil, -1, err
		}
		part, flags := e.part(index)
		own := len(part) > 0 && e.args.buffer.Seconds == e.taken/1e6 && e.args.buffer.Microseconds == e.taken%1e6
		switch {
		case flags&videodev.FlagError != 0:
			err = errDamaged
		case own && (e.coding != h264 || !setsAlone(part)):
			unit = part
			if before != nil {
				unit = append(before, part...)
			}
		default:
			before = append(before, part...)
			if err := e.enqueue(&e.coded, index, nil); err != nil {
				return nil, -1, err
			}
			continue
		}
		if _, lost := e.dequeue(&e.pictures, until); lost != nil {
			return nil, -1, lost
		}
		return unit, index, err
	}
}

// part returns the contents and the flags of the buffer of coded data that was just dequeued, or nil and
// videodev.FlagError if the device reports an impossible length.
func (e *Encoder) part(index int) (part []byte, flags uint32) {
	used, offset := int(e.args.buffer.Used), 0
	if e.multi {
		used, offset = int(e.args.planes[0].Used), int(e.args.planes[0].Offset)
	}
	memory := e.coded.buffers[index][0]
	if used > len(memory) || offset > used {
		return nil, videodev.FlagError
	}
	return memory[offset:used], e.args.buffer.Flags
}

// Close drains the device (dev-encoder.rst, Drain) and frees it.
func (e *Encoder) Close() error {
	var errs []error
	if e.taken > 0 && e.broken == nil {
		errs = append(errs, e.drain())
	}
	for _, q := range []*queue{&e.pictures, &e.coded} {
		errs = append(errs, e.release(q))
	}
	return errors.Join(append(errs, e.node.close())...)
}

// drain waits until the device signals the end of the coded data, by a flag or an empty buffer. A device without the
// stop command has nothing left after its pictures are done.
func (e *Encoder) drain() error {
	err := e.stop()
	for until := time.Now().Add(patience); err == nil; {
		var index int
		if index, err = e.dequeue(&e.coded, until); err == nil {
			if part, flags := e.part(index); flags&videodev.FlagLast != 0 || len(part) == 0 {
				return nil
			}
			err = e.enqueue(&e.coded, index, nil)
		}
	}
	if errors.Is(err, unix.EPIPE) || !e.node.nvidia() && (errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EINVAL)) {
		return nil
	}
	return e.errorf("it does not end: %w", err)
}

// stop tells the device that there are no more pictures: NVIDIA's by an empty one (v4l2_nv_extensions.h, EOS Handling).
func (e *Encoder) stop() error {
	if e.node.nvidia() {
		return e.node.Ioctl(videodev.Enqueue, unsafe.Pointer(e.buffer(&e.pictures, 0)))
	}
	return e.node.Ioctl(videodev.EncoderCommand, unsafe.Pointer(&videodev.Command{Command: videodev.CommandStop}))
}

func (e *Encoder) errorf(format string, a ...any) error {
	return fmt.Errorf("encoder "+e.path+": "+format, a...)
}
