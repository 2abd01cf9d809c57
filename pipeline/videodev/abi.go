// SPDX-License-Identifier: Apache-2.0

package videodev

import "unsafe"

// Structures of linux/videodev2.h, as laid out on 64-bit machines. The test compares them with the header.

// Capability is struct v4l2_capability.
type Capability struct {
	Driver       [16]byte
	Card         [32]byte
	Bus          [32]byte
	Version      uint32
	Capabilities uint32
	Device       uint32
	_            [3]uint32
}

// Can returns the capabilities of the device file, not those of the whole device.
func (c *Capability) Can() uint32 {
	if c.Capabilities&HasDevice != 0 {
		return c.Device
	}
	return c.Capabilities
}

// Capabilities.
const (
	CanCapture      = 0x00000001
	CanCaptureMulti = 0x00001000
	CanMulti        = 0x00004000 // V4L2_CAP_VIDEO_M2M_MPLANE
	CanSingle       = 0x00008000 // V4L2_CAP_VIDEO_M2M
	CanStream       = 0x04000000 // V4L2_CAP_STREAMING
	IsMediaCentric  = 0x20000000 // V4L2_CAP_IO_MC: formats are enumerated by code on the media bus
	HasDevice       = 0x80000000 // V4L2_CAP_DEVICE_CAPS: Device holds the capabilities of this device file
)

// Types of buffers.
const (
	Capture      = 1
	Output       = 2
	CaptureMulti = 9
	OutputMulti  = 10
)

// FormatDescription is struct v4l2_fmtdesc.
type FormatDescription struct {
	Index, Type, Flags uint32
	Description        [32]byte
	Pixels             uint32
	BusCode            uint32
	_                  [3]uint32
}

// SingleFormat is struct v4l2_pix_format.
type SingleFormat struct {
	Width, Height, Pixels, Field, Stride, Size, Colors, Private, Flags, Matrix, Quantization, Transfer uint32
}

// MultiFormat is struct v4l2_pix_format_mplane.
type MultiFormat struct {
	Width, Height, Pixels, Field, Colors uint32
	Planes                               [MaxPlanes]PlaneFormat
	Count                                uint8
	_                                    uint8
	Matrix, Quantization, Transfer       uint8
	_                                    [7]uint8
}

// MaxPlanes is the largest number of planes of a buffer.
const MaxPlanes = 8

// MaxBuffers is VIDEO_MAX_FRAME, the number of buffers of a queue up to Linux 6.8.
const MaxBuffers = 32

// PlaneFormat is struct v4l2_plane_pix_format.
type PlaneFormat struct {
	Size, Stride uint32
	_            [6]uint16
}

// Format is struct v4l2_format. Its union holds a MultiFormat or a SingleFormat.
type Format struct {
	Type uint32
	_    uint32
	data [25]uint64
}

// Single returns the format as that of the single-planar interface.
func (f *Format) Single() *SingleFormat { return (*SingleFormat)(unsafe.Pointer(&f.data)) }

// Multi returns the format as that of the multi-planar interface.
func (f *Format) Multi() *MultiFormat { return (*MultiFormat)(unsafe.Pointer(&f.data)) }

// Fields, colorimetry (enum v4l2_colorspace, v4l2_ycbcr_encoding, v4l2_quantization).
const (
	FieldAny             = 0
	FieldNone            = 1
	HasPrivate           = 0xfeedcafe // V4L2_PIX_FMT_PRIV_MAGIC: the fields after Private are set
	ColorsSMPTE170M      = 1
	ColorsSMPTE240M      = 2
	ColorsREC709         = 3
	ColorsJPEG           = 7
	ColorsBT2020         = 10
	ColorsDCIP3          = 12
	MatrixOf601          = 1
	MatrixOf709          = 2
	MatrixXV601          = 3
	MatrixXV709          = 4
	MatrixOf2020         = 6
	MatrixOf2020Constant = 7
	MatrixOf240M         = 8
	FullRange            = 1
	LimitedRange         = 2
)

// RequestBuffers is struct v4l2_requestbuffers.
type RequestBuffers struct {
	Count, Type, Memory, Capabilities uint32
	_                                 uint32
}

// Kinds of a buffer's memory.
const (
	MemoryMapped = 1 // V4L2_MEMORY_MMAP
	MemoryUser   = 2 // V4L2_MEMORY_USERPTR
)

// Buffer is struct v4l2_buffer.
type Buffer struct {
	Index, Type, Used, Flags, Field uint32
	_                               uint32
	Seconds, Microseconds           int64
	_                               [16]byte // timecode
	Sequence, Memory                uint32
	At                              uint64 // offset for mmap, address of the user's memory, or address of the planes
	Length                          uint32
	_                               [2]uint32
	_                               uint32
}

// Flags of a buffer.
const (
	FlagMapped        = 0x00000001
	FlagQueued        = 0x00000002
	FlagDone          = 0x00000004
	FlagError         = 0x00000040
	FlagStamps        = 0x0000e000 // mask of the two kinds of timestamps that follow
	FlagStampMonotone = 0x00002000 // V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC
	FlagStampCopy     = 0x00004000 // V4L2_BUF_FLAG_TIMESTAMP_COPY
	FlagStampSources  = 0x00070000 // mask
	FlagStampStart    = 0x00010000 // V4L2_BUF_FLAG_TSTAMP_SRC_SOE; 0: when the last pixel was received
	FlagLast          = 0x00100000
)

// Plane is struct v4l2_plane.
type Plane struct {
	Used, Length uint32
	At           uint64 // offset for mmap, or address of the user's memory
	Offset       uint32
	_            [11]uint32
}

// PlaneOf names a plane of a buffer: the type of its queue, its index, and the plane.
type PlaneOf struct{ Type, Index, Plane uint32 }

// ExportBuffer is struct v4l2_exportbuffer.
type ExportBuffer struct {
	PlaneOf
	Flags uint32
	FD    int32
	_     [11]uint32
}

// Subscription is struct v4l2_event_subscription.
type Subscription struct {
	Type, ID, Flags uint32
	_               [5]uint32
}

// Types of events.
const (
	EventEnd          = 2 // V4L2_EVENT_EOS
	EventSourceChange = 5
)

// Event is struct v4l2_event.
type Event struct {
	Type                 uint32
	_                    uint32
	Data                 [8]uint64
	Pending, Sequence    uint32
	Seconds, Nanoseconds int64
	ID                   uint32
	_                    [8]uint32
	_                    uint32
}

// StreamParameters is struct v4l2_streamparm. Those of captures and outputs begin in the same way.
type StreamParameters struct {
	Type                   uint32
	Capability, Mode       uint32
	Numerator, Denominator uint32 // frame duration in seconds
	_                      [184]byte
}

// CanSetRate is V4L2_CAP_TIMEPERFRAME.
const CanSetRate = 0x1000

// Timings is struct v4l2_dv_timings, which is packed.
type Timings struct {
	Type, Width, Height uint32
	_                   [30]uint32
}

// Selection is struct v4l2_selection.
type Selection struct {
	Type, Target, Flags      uint32
	Left, Top, Width, Height int32
	_                        [9]uint32
}

// Control is struct v4l2_ext_control, which is packed. Value holds a 32-bit value in its first word, a 64-bit value, or
// the address of Size bytes.
type Control struct {
	ID, Size, _ uint32
	Value       [2]uint32
}

// ControlList is struct v4l2_ext_controls.
type ControlList struct {
	Which, Count, Failed uint32
	Request              int32
	_                    [2]uint32
	List                 uintptr
}

// QueryControl is struct v4l2_query_ext_ctrl.
type QueryControl struct {
	ID, Type             uint32
	Name                 [32]byte
	Minimum, Maximum     int64
	Step                 uint64
	Default              int64
	Flags, ElementSize   uint32
	Elements, Dimensions uint32
	Dims                 [4]uint32
	_                    [32]uint32
}

// QueryMenu is struct v4l2_querymenu, which is packed. Name holds the name of an item, or its 64-bit value.
type QueryMenu struct {
	ID, Index uint32
	Name      [32]byte
	_         uint32
}

// FrameSize is struct v4l2_frmsizeenum. Size holds width and height of a discrete size; otherwise the least width, the
// largest, the step, and the same of the height.
type FrameSize struct {
	Index, Pixels, Type uint32
	Size                [6]uint32
	_                   [2]uint32
}

// FrameInterval is struct v4l2_frmivalenum. Interval holds a duration as a fraction of seconds; if it is not discrete,
// the shortest, the longest and the step.
type FrameInterval struct {
	Index, Pixels, Width, Height, Type uint32
	Interval                           [3]Fraction
	_                                  [2]uint32
}

// Fraction is struct v4l2_fract.
type Fraction struct{ Numerator, Denominator uint32 }

// Discrete is V4L2_FRMSIZE_TYPE_DISCRETE and V4L2_FRMIVAL_TYPE_DISCRETE.
const Discrete = 1

// Command is struct v4l2_encoder_cmd.
type Command struct {
	Command, Flags uint32
	_              [8]uint32
}

// CommandStop is V4L2_ENC_CMD_STOP.
const CommandStop = 1

// SubdeviceFormat is struct v4l2_subdev_format.
type SubdeviceFormat struct {
	Which, Pad                         uint32
	Width, Height, Code, Field, Colors uint32
	_                                  [14]uint16
	_                                  [8]uint32
}

// Active is V4L2_SUBDEV_FORMAT_ACTIVE.
const Active = 1

// Requests for ioctl(2).
const (
	writes, reads = 1 << 30, 2 << 30

	QueryCapabilities = reads | unsafe.Sizeof(Capability{})<<16 | 'V'<<8
	ListFormats       = reads | writes | unsafe.Sizeof(FormatDescription{})<<16 | 'V'<<8 | 2
	GetFormat         = reads | writes | unsafe.Sizeof(Format{})<<16 | 'V'<<8 | 4
	SetFormat         = reads | writes | unsafe.Sizeof(Format{})<<16 | 'V'<<8 | 5
	MakeBuffers       = reads | writes | unsafe.Sizeof(RequestBuffers{})<<16 | 'V'<<8 | 8
	QueryBuffer       = reads | writes | unsafe.Sizeof(Buffer{})<<16 | 'V'<<8 | 9
	Enqueue           = reads | writes | unsafe.Sizeof(Buffer{})<<16 | 'V'<<8 | 15
	Export            = reads | writes | unsafe.Sizeof(ExportBuffer{})<<16 | 'V'<<8 | 16
	Dequeue           = reads | writes | unsafe.Sizeof(Buffer{})<<16 | 'V'<<8 | 17
	StreamOn          = writes | 4<<16 | 'V'<<8 | 18
	StreamOff         = writes | 4<<16 | 'V'<<8 | 19
	GetParameters     = reads | writes | unsafe.Sizeof(StreamParameters{})<<16 | 'V'<<8 | 21
	SetParameters     = reads | writes | unsafe.Sizeof(StreamParameters{})<<16 | 'V'<<8 | 22
	QueryMenuItem     = reads | writes | unsafe.Sizeof(QueryMenu{})<<16 | 'V'<<8 | 37
	GetControls       = reads | writes | unsafe.Sizeof(ControlList{})<<16 | 'V'<<8 | 71
	SetControls       = reads | writes | unsafe.Sizeof(ControlList{})<<16 | 'V'<<8 | 72
	ListSizes         = reads | writes | unsafe.Sizeof(FrameSize{})<<16 | 'V'<<8 | 74
	ListIntervals     = reads | writes | unsafe.Sizeof(FrameInterval{})<<16 | 'V'<<8 | 75
	EncoderCommand    = reads | writes | unsafe.Sizeof(Command{})<<16 | 'V'<<8 | 77
	SetTimings        = reads | writes | unsafe.Sizeof(Timings{})<<16 | 'V'<<8 | 87
	DequeueEvent      = reads | unsafe.Sizeof(Event{})<<16 | 'V'<<8 | 89
	Subscribe         = writes | unsafe.Sizeof(Subscription{})<<16 | 'V'<<8 | 90
	SetSelection      = reads | writes | unsafe.Sizeof(Selection{})<<16 | 'V'<<8 | 95
	QueryTimings      = reads | unsafe.Sizeof(Timings{})<<16 | 'V'<<8 | 99
	DescribeControl   = reads | writes | unsafe.Sizeof(QueryControl{})<<16 | 'V'<<8 | 103

	GetSubdeviceFormat = reads | writes | unsafe.Sizeof(SubdeviceFormat{})<<16 | 'V'<<8 | 4
)

// Code returns a four-character code.
func Code(s string) uint32 {
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

// Letters returns a four-character code as text, with a dot for each byte that cannot be printed. The highest bit, which
// means big-endian, is left out.
func Letters(code uint32) string {
	b := []byte{byte(code), byte(code >> 8), byte(code >> 16), byte(code>>24) & 0x7f}
	for i, c := range b {
		if c < ' ' || c > '~' {
			b[i] = '.'
		}
	}
	return string(b)
}

// text returns a name that a device has returned: up to its first 0, with a dot for each byte that cannot be printed.
func text(b []byte) string {
	var out []byte
	for _, c := range b {
		if c == 0 {
			break
		}
		if c < ' ' || c > '~' {
			c = '.'
		}
		out = append(out, c)
	}
	return string(out)
}
