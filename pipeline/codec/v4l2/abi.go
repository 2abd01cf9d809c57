// SPDX-License-Identifier: Apache-2.0

package v4l2

import "unsafe"

// Structures and constants of linux/videodev2.h and linux/v4l2-controls.h, as laid out on 64-bit machines.

type capability struct {
	_            [80]byte // driver, card, bus
	version      uint32
	capabilities uint32
	device       uint32
	_            [3]uint32
}

const (
	canMulti  = 0x00004000 // V4L2_CAP_VIDEO_M2M_MPLANE
	canSingle = 0x00008000 // V4L2_CAP_VIDEO_M2M
	canStream = 0x04000000 // V4L2_CAP_STREAMING
	hasDevice = 0x80000000 // V4L2_CAP_DEVICE_CAPS: capability.device holds the capabilities of this device file
)

// Types of buffers: of coded data, which applications capture, and of pictures, which they output.
const (
	singleCoded   = 1
	singlePicture = 2
	multiCoded    = 9
	multiPicture  = 10
)

type formatDescription struct {
	index, kind, flags uint32
	_                  [32]byte
	pixels             uint32
	_                  [4]uint32
}

// singleFormat is struct v4l2_pix_format.
type singleFormat struct {
	width, height, pixels, field, stride, size, colors, private, flags, matrix, quantization, transfer uint32
}

// multiFormat is struct v4l2_pix_format_mplane.
type multiFormat struct {
	width, height, pixels, field, colors uint32
	planes                               [maxPlanes]planeFormat
	count                                uint8
	_                                    uint8
	matrix, quantization, transfer       uint8
	_                                    [7]uint8
}

const maxPlanes = 8

type planeFormat struct {
	size, stride uint32
	_            [6]uint16
}

// format is struct v4l2_format. Its union holds a multiFormat or a singleFormat.
type format struct {
	kind uint32
	_    uint32
	data [25]uint64
}

func (f *format) single() *singleFormat { return (*singleFormat)(unsafe.Pointer(&f.data)) }
func (f *format) multi() *multiFormat   { return (*multiFormat)(unsafe.Pointer(&f.data)) }

const (
	fieldNone       = 1
	hasPrivate      = 0xfeedcafe // V4L2_PIX_FMT_PRIV_MAGIC: the fields after private are set
	colorsSMPTE170M = 1
	colorsREC709    = 3
	matrixOf601     = 1
	matrixOf709     = 2
	fullRange       = 1
	limitedRange    = 2
)

type requestBuffers struct {
	count, kind, memory, capabilities uint32
	_                                 uint32
}

const memoryMapped = 1 // V4L2_MEMORY_MMAP

// buffer is struct v4l2_buffer.
type buffer struct {
	index, kind, used, flags, field uint32
	_                               uint32
	seconds, microseconds           int64
	_                               [16]byte // timecode
	sequence, memory                uint32
	at                              uint64 // offset for mmap, or the address of the planes
	length                          uint32
	_                               [2]uint32
	_                               uint32
}

const (
	flagError = 0x00000040
	flagStamp = 0x00004000 // V4L2_BUF_FLAG_TIMESTAMP_COPY
	flagLast  = 0x00100000
)

type plane struct {
	used, length uint32
	at           uint64 // offset for mmap
	dataOffset   uint32
	_            [11]uint32
}

// exportBuffer is struct v4l2_exportbuffer.
type exportBuffer struct {
	planeOf
	flags uint32
	fd    int32
	_     [11]uint32
}

// subscription is struct v4l2_event_subscription.
type subscription struct {
	kind, id, flags uint32
	_               [5]uint32
}

const eventEnd = 2 // V4L2_EVENT_EOS

// outputRate is struct v4l2_streamparm for an output.
type outputRate struct {
	kind                   uint32
	capability, mode       uint32
	numerator, denominator uint32 // frame duration in seconds
	_                      [184]byte
}

type selection struct {
	kind, target, flags      uint32
	left, top, width, height int32
	_                        [9]uint32
}

type control struct {
	id, size, _ uint32
	value       [2]uint32 // struct v4l2_ext_control is packed; 32-bit values use the first word
}

type controls struct {
	which, count, failed uint32
	request              int32
	_                    [2]uint32
	list                 uintptr
}

type command struct {
	command, flags uint32
	_              [8]uint32
}

const commandStop = 1 // V4L2_ENC_CMD_STOP

// Requests for ioctl(2).
const (
	writes, reads = 1 << 30, 2 << 30

	queryCapabilities = reads | unsafe.Sizeof(capability{})<<16 | 'V'<<8
	listFormats       = reads | writes | unsafe.Sizeof(formatDescription{})<<16 | 'V'<<8 | 2
	setFormat         = reads | writes | unsafe.Sizeof(format{})<<16 | 'V'<<8 | 5
	makeBuffers       = reads | writes | unsafe.Sizeof(requestBuffers{})<<16 | 'V'<<8 | 8
	queryBuffer       = reads | writes | unsafe.Sizeof(buffer{})<<16 | 'V'<<8 | 9
	enqueue           = reads | writes | unsafe.Sizeof(buffer{})<<16 | 'V'<<8 | 15
	export            = reads | writes | unsafe.Sizeof(exportBuffer{})<<16 | 'V'<<8 | 16
	dequeue           = reads | writes | unsafe.Sizeof(buffer{})<<16 | 'V'<<8 | 17
	streamOn          = writes | 4<<16 | 'V'<<8 | 18
	streamOff         = writes | 4<<16 | 'V'<<8 | 19
	setRate           = reads | writes | unsafe.Sizeof(outputRate{})<<16 | 'V'<<8 | 22
	setControls       = reads | writes | unsafe.Sizeof(controls{})<<16 | 'V'<<8 | 72
	encoderCommand    = reads | writes | unsafe.Sizeof(command{})<<16 | 'V'<<8 | 77
	subscribe         = writes | unsafe.Sizeof(subscription{})<<16 | 'V'<<8 | 90
	setSelection      = reads | writes | unsafe.Sizeof(selection{})<<16 | 'V'<<8 | 95
)

// Controls, numbered from V4L2_CID_CODEC_BASE, and values of controls.
const (
	codecClass      = 0x00990000
	codecBase       = codecClass + 0x900
	controlBFrames  = codecBase + 202
	controlGOP      = codecBase + 203
	controlMode     = codecBase + 206
	controlBitrate  = codecBase + 207
	controlByFrame  = codecBase + 215
	controlHeaders  = codecBase + 216
	controlForceKey = codecBase + 229
	controlPeriod   = codecBase + 358
	controlLevel    = codecBase + 359
	controlProfile  = codecBase + 363
	controlIDR      = codecBase + 514 // V4L2_CID_MPEG_VIDEO_IDR_INTERVAL of NVIDIA's v4l2_nv_extensions.h
	controlSets     = codecBase + 644
	controlForceOld = codecClass + 0x1100 + 3 // V4L2_CID_MPEG_MFC51_VIDEO_FORCE_FRAME_TYPE, also used by NVIDIA

	modeConstant       = 1 // V4L2_MPEG_VIDEO_BITRATE_MODE_CBR
	headersJoined      = 1 // V4L2_MPEG_VIDEO_HEADER_MODE_JOINED_WITH_1ST_FRAME
	profileBaseline    = 0 // V4L2_MPEG_VIDEO_H264_PROFILE_BASELINE
	profileConstrained = 1 // V4L2_MPEG_VIDEO_H264_PROFILE_CONSTRAINED_BASELINE
	level30            = 8 // V4L2_MPEG_VIDEO_H264_LEVEL_3_0; the others follow up to 5.2
	level52            = 16
	longest            = 1 << 16 // frames; the kernel uses the nearest value it supports
)

// fourcc returns a four-character code.
func fourcc(s string) uint32 {
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

// h264 is the four-character code of H.264.
var h264 = fourcc("H264")

// letters returns a four-character code as text.
func letters(code uint32) string {
	return string([]byte{byte(code), byte(code >> 8), byte(code >> 16), byte(code >> 24)})
}
