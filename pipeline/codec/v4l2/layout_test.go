// SPDX-License-Identifier: Apache-2.0

package v4l2

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/tegracast/tegracast/cudahost/headertest"
)

// TestLayout compares the structs passed to the kernel with its header.
func TestLayout(t *testing.T) {
	text := ""
	for _, list := range [][]any{sizes(), numbers()} {
		for i := 0; i < len(list); i += 2 {
			text += fmt.Sprintln(list[i], list[i+1])
		}
	}
	if out := headertest.Output(t, "testdata/layout.c"); out != text {
		t.Errorf("the header has\n%s\nand the package\n%s", out, text)
	}
}

func sizes() []any {
	var (
		c capability
		d formatDescription
		s singleFormat
		m multiFormat
		p planeFormat
		f format
		r requestBuffers
		b buffer
		l plane
		x exportBuffer
		n subscription
		o outputRate
		w selection
		v control
		k controls
		e command
	)
	return []any{
		"v4l2_capability", unsafe.Sizeof(c), "v4l2_capability.device_caps", unsafe.Offsetof(c.device),
		"v4l2_fmtdesc", unsafe.Sizeof(d), "v4l2_fmtdesc.pixelformat", unsafe.Offsetof(d.pixels),
		"v4l2_pix_format", unsafe.Sizeof(s), "v4l2_pix_format.bytesperline", unsafe.Offsetof(s.stride),
		"v4l2_pix_format.sizeimage", unsafe.Offsetof(s.size), "v4l2_pix_format.ycbcr_enc", unsafe.Offsetof(s.matrix),
		"v4l2_pix_format.quantization", unsafe.Offsetof(s.quantization),
		"v4l2_pix_format_mplane", unsafe.Sizeof(m), "v4l2_pix_format_mplane.plane_fmt", unsafe.Offsetof(m.planes),
		"v4l2_pix_format_mplane.num_planes", unsafe.Offsetof(m.count), "v4l2_pix_format_mplane.ycbcr_enc", unsafe.Offsetof(m.matrix),
		"v4l2_pix_format_mplane.quantization", unsafe.Offsetof(m.quantization),
		"v4l2_plane_pix_format", unsafe.Sizeof(p), "v4l2_plane_pix_format.bytesperline", unsafe.Offsetof(p.stride),
		"v4l2_format", unsafe.Sizeof(f), "v4l2_format.fmt", unsafe.Offsetof(f.data),
		"v4l2_requestbuffers", unsafe.Sizeof(r),
		"v4l2_buffer", unsafe.Sizeof(b), "v4l2_buffer.timestamp", unsafe.Offsetof(b.seconds), "v4l2_buffer.memory", unsafe.Offsetof(b.memory),
		"v4l2_buffer.m", unsafe.Offsetof(b.at), "v4l2_buffer.length", unsafe.Offsetof(b.length),
		"v4l2_plane", unsafe.Sizeof(l), "v4l2_plane.m", unsafe.Offsetof(l.at), "v4l2_plane.data_offset", unsafe.Offsetof(l.dataOffset),
		"v4l2_exportbuffer", unsafe.Sizeof(x), "v4l2_exportbuffer.plane", unsafe.Offsetof(x.plane), "v4l2_exportbuffer.fd", unsafe.Offsetof(x.fd),
		"v4l2_event_subscription", unsafe.Sizeof(n), "v4l2_event_subscription.type", unsafe.Offsetof(n.kind),
		"v4l2_streamparm", unsafe.Sizeof(o), "v4l2_streamparm.parm.output.timeperframe", unsafe.Offsetof(o.numerator),
		"v4l2_selection", unsafe.Sizeof(w), "v4l2_selection.r", unsafe.Offsetof(w.left),
		"v4l2_ext_control", unsafe.Sizeof(v), "v4l2_ext_control.value", unsafe.Offsetof(v.value),
		"v4l2_ext_controls", unsafe.Sizeof(k), "v4l2_ext_controls.controls", unsafe.Offsetof(k.list),
		"v4l2_encoder_cmd", unsafe.Sizeof(e),
	}
}

func numbers() []any {
	return []any{
		"V4L2_CAP_VIDEO_M2M_MPLANE", canMulti, "V4L2_CAP_VIDEO_M2M", canSingle, "V4L2_CAP_STREAMING", canStream, "V4L2_CAP_DEVICE_CAPS", uint32(hasDevice),
		"V4L2_BUF_TYPE_VIDEO_CAPTURE", singleCoded, "V4L2_BUF_TYPE_VIDEO_OUTPUT", singlePicture,
		"V4L2_BUF_TYPE_VIDEO_CAPTURE_MPLANE", multiCoded, "V4L2_BUF_TYPE_VIDEO_OUTPUT_MPLANE", multiPicture,
		"V4L2_FIELD_NONE", fieldNone, "V4L2_PIX_FMT_PRIV_MAGIC", uint32(hasPrivate), "V4L2_COLORSPACE_SMPTE170M", colorsSMPTE170M, "V4L2_COLORSPACE_REC709", colorsREC709,
		"V4L2_YCBCR_ENC_601", matrixOf601, "V4L2_YCBCR_ENC_709", matrixOf709,
		"V4L2_QUANTIZATION_FULL_RANGE", fullRange, "V4L2_QUANTIZATION_LIM_RANGE", limitedRange,
		"V4L2_MEMORY_MMAP", memoryMapped, "V4L2_BUF_FLAG_ERROR", flagError, "V4L2_BUF_FLAG_LAST", flagLast, "V4L2_BUF_FLAG_TIMESTAMP_COPY", flagStamp,
		"V4L2_ENC_CMD_STOP", commandStop, "V4L2_EVENT_EOS", eventEnd,
		"VIDIOC_QUERYCAP", queryCapabilities, "VIDIOC_ENUM_FMT", listFormats, "VIDIOC_S_FMT", setFormat, "VIDIOC_REQBUFS", makeBuffers,
		"VIDIOC_QUERYBUF", queryBuffer, "VIDIOC_EXPBUF", export, "VIDIOC_QBUF", enqueue, "VIDIOC_DQBUF", dequeue, "VIDIOC_STREAMON", streamOn, "VIDIOC_STREAMOFF", streamOff,
		"VIDIOC_S_PARM", setRate, "VIDIOC_S_EXT_CTRLS", setControls, "VIDIOC_ENCODER_CMD", encoderCommand, "VIDIOC_SUBSCRIBE_EVENT", subscribe, "VIDIOC_S_SELECTION", setSelection,
		"V4L2_CID_MPEG_VIDEO_B_FRAMES", controlBFrames, "V4L2_CID_MPEG_VIDEO_GOP_SIZE", controlGOP, "V4L2_CID_MPEG_VIDEO_BITRATE_MODE", controlMode,
		"V4L2_CID_MPEG_VIDEO_BITRATE", controlBitrate, "V4L2_CID_MPEG_VIDEO_FRAME_RC_ENABLE", controlByFrame,
		"V4L2_CID_MPEG_VIDEO_HEADER_MODE", controlHeaders, "V4L2_CID_MPEG_VIDEO_FORCE_KEY_FRAME", controlForceKey,
		"V4L2_CID_MPEG_VIDEO_H264_I_PERIOD", controlPeriod, "V4L2_CID_MPEG_VIDEO_H264_LEVEL", controlLevel, "V4L2_CID_MPEG_VIDEO_H264_PROFILE", controlProfile,
		"V4L2_CID_MPEG_MFC51_VIDEO_FORCE_FRAME_TYPE", controlForceOld, "V4L2_MPEG_VIDEO_H264_LEVEL_3_0", level30, "V4L2_MPEG_VIDEO_H264_LEVEL_5_2", level52,
		"V4L2_CID_MPEG_VIDEO_PREPEND_SPSPPS_TO_IDR", controlSets, "V4L2_MPEG_VIDEO_BITRATE_MODE_CBR", modeConstant,
		"V4L2_MPEG_VIDEO_HEADER_MODE_JOINED_WITH_1ST_FRAME", headersJoined, "V4L2_MPEG_VIDEO_H264_PROFILE_BASELINE", profileBaseline,
		"V4L2_MPEG_VIDEO_H264_PROFILE_CONSTRAINED_BASELINE", profileConstrained,
		"V4L2_PIX_FMT_YUV420", pictureFormats[0], "V4L2_PIX_FMT_YUV420M", pictureFormats[1], "V4L2_PIX_FMT_NV12", pictureFormats[2],
		"V4L2_PIX_FMT_NV12M", pictureFormats[3], "V4L2_PIX_FMT_H264", fourcc("H264"), "V4L2_PIX_FMT_FWHT", fourcc("FWHT"),
	}
}
