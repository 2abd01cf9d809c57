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
const patience = 2 * time.Second

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
	broken   error // the device does not answer
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
	n, err := open(path)
	if err != nil {
		return nil, err
	}
	e, err := newEncoder(n, path, f, fourcc("H264"))
	if err == nil {
		err = e.begin(bitrate)
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func open(path string) (node, error) {
	if isNVIDIA(path) {
		return openThrough(nvidiaLibrary, path)
	}
	return openKernel(path)
}

// newEncoder agrees with a device on formats, and makes buffers (dev-encoder.rst, Initialization). With an error, too, Close frees what
// it returns.
func newEncoder(n node, path string, f pipeline.Format, coding uint32) (*Encoder, error) {
	e := &Encoder{node: n, path: path, format: f, coding: coding}
	c := &capability{}
	if err := n.ioctl(queryCapabilities, unsafe.Pointer(c)); err != nil {
		return e, e.errorf("it is no device of V4L2: %w", err)
	}
	e.multi = c.device&canMulti != 0
	switch {
	case c.device&(canMulti|canSingle) == 0 || c.device&canStream == 0:
		return e, e.errorf("it does not turn memory into memory, as an encoder does (capabilities %#x)", c.device)
	case e.multi:
		e.pictures.kind, e.coded.kind = multiPicture, multiCoded
	default:
		e.pictures.kind, e.coded.kind = singlePicture, singleCoded
	}
	if err := e.agree(); err != nil {
		return e, err
	}
	e.pace()
	for _, q := range []*queue{&e.coded, &e.pictures} {
		if err := e.allocate(q); err != nil {
			return e, err
		}
	}
	return e, nil
}

// begin sets what H.264 has, starts, and learns the parameter sets from a picture that nobody gets.
func (e *Encoder) begin(bitrate int) error {
	for _, c := range []struct {
		what  string
		id    uint32
		value int
		must  bool
	}{
		{"bit rate", controlBitrate, bitrate, true},
		{"constant bit rate", controlMode, modeConstant, false},
		{"rate control by frame", controlByFrame, 1, false},
		{"no B pictures", controlBFrames, 0, false},
		{"key frames on demand", controlGOP, longest, false},
		{"period of intra pictures", controlPeriod, longest, false},
		{"profile", controlProfile, profileBaseline, false},
		{"parameter sets with pictures", controlHeaders, headersJoined, false},
		{"parameter sets with each key frame", controlSets, 1, false},
	} {
		if err := e.set(c.id, c.value); err != nil && c.must {
			return e.errorf("%s %d: %w", c.what, c.value, err)
		}
	}
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
		return e.errorf("%w: no parameter sets in its first unit", codec.ErrEncode)
	}
	return nil
}

// set sets a control.
func (e *Encoder) set(id uint32, value int) error {
	e.args.control = control{id: id, value: [2]uint32{uint32(int32(value))}}
	e.args.controls = controls{count: 1, list: uintptr(unsafe.Pointer(&e.args.control))}
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
	return nil
}

// Encode appends f's picture to dst as a byte stream of H.264 (Annex B), as codec.H264 does. It waits for the device. An error that
// wraps codec.ErrEncode is that of one picture, or of a device that has not answered for two seconds: then all that follow fail.
func (e *Encoder) Encode(dst []byte, f *pipeline.Frame, key bool) ([]byte, error) {
	switch {
	case e.broken != nil:
		return dst, e.broken
	case f.Format.Pixel != e.format.Pixel || f.Format.Width != e.format.Width || f.Format.Height != e.format.Height || len(f.Bytes) < f.Format.Size():
		return dst, fmt.Errorf("%w: frame %d: %d bytes of %s", codec.ErrFormat, f.Sequence, len(f.Bytes), f.Format)
	}
	key = key || e.askKey
	if key {
		if err := e.set(controlForceKey, 1); err != nil {
			return dst, e.errorf("key frame: %w", err)
		}
	}
	unit, flags, index, err := e.code(f)
	if err != nil {
		e.broken = e.errorf("%w: frame %d: %w", codec.ErrEncode, f.Sequence, err)
		return dst, e.broken
	}
	e.askKey = flags&flagError != 0
	joined := !key || e.sps == nil || hasSets(unit)
	switch {
	case flags&flagError != 0 || len(unit) == 0:
		err = fmt.Errorf("%w: frame %d: %s could not encode it", codec.ErrEncode, f.Sequence, e.path)
	case len(unit)+len(e.sps)+len(e.pps)+8 > cap(dst)-len(dst):
		err = fmt.Errorf("%w: frame %d: more than %d bytes", codec.ErrEncode, f.Sequence, cap(dst))
	default:
		if !joined {
			dst = append(append(append(append(dst, startCode...), e.sps...), startCode...), e.pps...)
		}
		dst = append(dst, unit...)
	}
	if lost := e.enqueue(&e.coded, index, nil); lost != nil {
		e.broken = e.errorf("%w: its buffer cannot be given back: %w", codec.ErrEncode, lost)
	}
	return dst, err
}

// code has the device encode a picture. unit is memory of the device: of that buffer, which is given back when it is read.
func (e *Encoder) code(f *pipeline.Frame) (unit []byte, flags uint32, index int, err error) {
	e.taken++
	if err := e.enqueue(&e.pictures, 0, f); err != nil {
		return nil, 0, 0, err
	}
	if index, err = e.dequeue(&e.coded); err != nil {
		return nil, 0, 0, err
	}
	used, offset := int(e.args.buffer.used), 0
	if flags = e.args.buffer.flags; e.multi {
		used, offset = int(e.args.planes[0].used), int(e.args.planes[0].dataOffset)
	}
	memory := e.coded.buffers[index][0]
	if used > len(memory) || offset > used {
		return nil, 0, 0, fmt.Errorf("%d bytes, from %d on, in a buffer of %d", used, offset, len(memory))
	}
	if e.args.buffer.microseconds != e.taken%1e6 || e.args.buffer.seconds != e.taken/1e6 {
		return nil, 0, 0, errors.New("it coded another picture")
	}
	_, err = e.dequeue(&e.pictures)
	return memory[offset:used], flags, index, err
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

// drain waits until the device says that nothing more comes. One without that command is at its end when its pictures are.
func (e *Encoder) drain() error {
	err := e.node.ioctl(encoderCommand, unsafe.Pointer(&command{command: commandStop}))
	for err == nil {
		if _, err = e.dequeue(&e.coded); err == nil && e.args.buffer.flags&flagLast != 0 {
			return nil
		}
	}
	if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return e.errorf("it does not end: %w", err)
}

func (e *Encoder) errorf(format string, a ...any) error {
	return fmt.Errorf("encoder "+e.path+": "+format, a...)
}
