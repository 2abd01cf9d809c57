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
)

// patience is how long a device may take for a picture, or for its end.
const patience = 5 * time.Second

// ErrEncode is that of a picture that was not encoded.
var ErrEncode = errors.New("not encoded")

// An Encoder encodes pictures of one format on a device. It is not safe for concurrent use.
type Encoder struct {
	node     node
	path     string
	format   pipeline.Format
	coding   uint32 // the code of what the device makes
	multi    bool   // it has the interface of several planes
	pictures queue
	coded    queue
	sps, pps []byte
	taken    int64 // pictures
	askKey   bool  // the next picture is a key frame: one before is damaged
	bitrate  int
	open     func() (node, error) // opens the device again; nil: it is not
	broken   error                // the device does not answer
	since    time.Time            // when that was last tried
	args     args
}

// args is what the device reads and writes in a call: in the heap, where nothing moves.
type args struct {
	format   format
	buffer   buffer
	planes   [maxPlanes]plane
	control  control
	controls controls
	kind     int32
}

// New opens the encoder of a device file, for pictures of format f, which is I420, at so many bits a second. Errors wrap
// codec.ErrFormat, or those of the file.
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

// opened opens an encoder of H.264.
func opened(open func() (node, error), path string, f pipeline.Format, bitrate int) (*Encoder, error) {
	n, err := open()
	if err != nil {
		return nil, err
	}
	e, err := newEncoder(n, path, f, h264, bitrate)
	if err == nil {
		err = e.begin()
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	e.open = open
	return e, nil
}

func open(path string) (node, error) {
	if isNVIDIA(path) {
		return openThrough(nvidiaLibrary, path)
	}
	return openKernel(path)
}

// newEncoder agrees with a device on formats and, where bitrate is not 0, on what H.264 has, and makes buffers (dev-encoder.rst,
// Initialization). With an error, too, Close frees what it returns.
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

// recognize asks the device what it is.
func (e *Encoder) recognize() error {
	c := &capability{}
	if err := e.node.ioctl(queryCapabilities, unsafe.Pointer(c)); err != nil {
		return e.errorf("it is no device of V4L2: %w", err)
	}
	can := c.capabilities
	if can&hasDevice != 0 {
		can = c.device
	}
	e.multi = can&canMulti != 0
	switch {
	case can&(canMulti|canSingle) == 0 || can&canStream == 0:
		return e.errorf("it does not turn memory into memory, as an encoder does (capabilities %#x)", can)
	case e.multi:
		e.pictures.kind, e.coded.kind = multiPicture, multiCoded
	default:
		e.pictures.kind, e.coded.kind = singlePicture, singleCoded
	}
	return nil
}

// control sets what H.264 has. Devices have what they have: only the bit rate is a must, and that key frames can be asked for.
func (e *Encoder) control(bitrate int) error {
	for _, c := range [][2]int{
		{controlMode, modeConstant},
		{controlByFrame, 1},
		{controlBFrames, 0},
		{controlGOP, longest},
		{controlPeriod, longest},
		{controlProfile, profileBaseline},
		{controlLevel, level(e.format)},
		{controlHeaders, headersJoined},
		{controlSets, 1},
	} {
		_ = e.set(uint32(c[0]), c[1])
	}
	return e.SetBitrate(bitrate)
}

// level is the least level for pictures of a format, as V4L2 numbers them (H.264 table A-1: blocks a picture, blocks a second).
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

// begin starts, and learns the parameter sets from a picture that nobody gets.
func (e *Encoder) begin() error {
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
	e.args.control = control{id: id, value: [2]uint32{uint32(int32(value))}}
	e.args.controls = controls{which: codecClass, count: 1, list: uintptr(unsafe.Pointer(&e.args.control))}
	return e.node.ioctl(setControls, unsafe.Pointer(&e.args.controls))
}

// start has the device take pictures.
func (e *Encoder) start() error {
	for i := range e.coded.buffers {
		if err := e.enqueue(&e.coded, i, nil); err != nil {
			return e.errorf("a buffer for coded data: %w", err)
		}
	}
	for _, q := range []*queue{&e.pictures, &e.coded} {
		e.args.kind = int32(q.kind)
		if err := e.node.ioctl(streamOn, unsafe.Pointer(&e.args.kind)); err != nil {
			return e.errorf("it does not start: %w", err)
		}
	}
	return nil
}

// ParameterSets are the SPS and the PPS of the stream, without start codes.
func (e *Encoder) ParameterSets() (sps, pps []byte) { return e.sps, e.pps }

// SetBitrate changes the bits a second of the pictures that come.
func (e *Encoder) SetBitrate(bits int) error {
	if err := e.set(controlBitrate, bits); err != nil {
		return e.errorf("bit rate %d: %w", bits, err)
	}
	e.bitrate = bits
	return nil
}

// Encode appends f's picture to dst as a byte stream of H.264 (Annex B), as codec.H264 does. It waits for the device. Errors of a picture
// wrap ErrEncode. A device that has not answered for five seconds is opened again, a second later: until then all pictures fail.
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

// again is how long a device that has not answered is left alone.
const again = time.Second

// revive opens a device that has not answered once more.
func (e *Encoder) revive() error {
	switch {
	case e.broken == nil:
		return nil
	case e.open == nil || time.Since(e.since) < again:
		return e.broken
	}
	e.since = time.Now()
	_ = e.Close() // it has nothing that is needed
	next, err := opened(e.open, e.path, e.format, e.bitrate)
	if err != nil {
		e.node = gone{}
		return fmt.Errorf("%w: again: %w", e.broken, err)
	}
	*e = *next
	e.askKey = true
	return nil
}

// forceKey asks for a key frame, by the kernel's control or by that of older devices.
func (e *Encoder) forceKey() error {
	err := e.set(controlForceKey, 1)
	if err != nil && e.set(controlForceOld, 1) == nil {
		return nil
	}
	return err
}

// errDamaged is that of a picture that the device could not encode.
var errDamaged = errors.New("the picture is damaged")

// code has the device encode a picture. unit is memory of the device, of the buffer index, which is given back when it is read; -1: there
// is none. What comes before the picture's own data, such as parameter sets, is put before it.
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
		own := len(part) > 0 && e.args.buffer.seconds == e.taken/1e6 && e.args.buffer.microseconds == e.taken%1e6
		switch {
		case flags&flagError != 0:
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

// part is what is in the buffer of coded data that was just dequeued.
func (e *Encoder) part(index int) (part []byte, flags uint32) {
	used, offset := int(e.args.buffer.used), 0
	if e.multi {
		used, offset = int(e.args.planes[0].used), int(e.args.planes[0].dataOffset)
	}
	memory := e.coded.buffers[index][0]
	if used > len(memory) || offset > used {
		return nil, flagError
	}
	return memory[offset:used], e.args.buffer.flags
}

// Close lets the device end what it has (dev-encoder.rst, Drain), and frees it.
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

// drain waits until the device says that nothing more comes: by a flag, or by a buffer with nothing in it. One without that command is at
// its end when its pictures are.
func (e *Encoder) drain() error {
	err := e.node.ioctl(encoderCommand, unsafe.Pointer(&command{command: commandStop}))
	for until := time.Now().Add(patience); err == nil; {
		var index int
		if index, err = e.dequeue(&e.coded, until); err == nil {
			if part, flags := e.part(index); flags&flagLast != 0 || len(part) == 0 {
				return nil
			}
			err = e.enqueue(&e.coded, index, nil)
		}
	}
	if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPIPE) {
		return nil
	}
	return e.errorf("it does not end: %w", err)
}

func (e *Encoder) errorf(format string, a ...any) error {
	return fmt.Errorf("encoder "+e.path+": "+format, a...)
}
