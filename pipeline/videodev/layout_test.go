// SPDX-License-Identifier: Apache-2.0

package videodev

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/tegracast/tegracast/cudahost/headertest"
)

// TestLayout compares structures and numbers with the kernel's headers, and the table of codes on the media bus.
func TestLayout(t *testing.T) {
	text := ""
	for _, list := range [][]any{sizes(), numbers()} {
		for i := 0; i < len(list); i += 2 {
			text += fmt.Sprintln(list[i], list[i+1])
		}
	}
	for _, b := range busCodes {
		text += fmt.Sprintln("MEDIA_BUS_FMT_"+b.name, b.code)
	}
	if out := headertest.Output(t, "testdata/layout.c"); out != text {
		t.Errorf("the headers have\n%s\nand the package\n%s", out, text)
	}
}

func sizes() []any {
	return []any{
		"v4l2_capability", unsafe.Sizeof(Capability{}), "v4l2_capability.card", unsafe.Offsetof(Capability{}.Card),
		"v4l2_capability.bus_info", unsafe.Offsetof(Capability{}.Bus), "v4l2_capability.device_caps", unsafe.Offsetof(Capability{}.Device),
		"v4l2_fmtdesc", unsafe.Sizeof(FormatDescription{}), "v4l2_fmtdesc.pixelformat", unsafe.Offsetof(FormatDescription{}.Pixels),
		"v4l2_fmtdesc.mbus_code", unsafe.Offsetof(FormatDescription{}.BusCode),
		"v4l2_pix_format", unsafe.Sizeof(SingleFormat{}), "v4l2_pix_format.bytesperline", unsafe.Offsetof(SingleFormat{}.Stride),
		"v4l2_pix_format.sizeimage", unsafe.Offsetof(SingleFormat{}.Size), "v4l2_pix_format.ycbcr_enc", unsafe.Offsetof(SingleFormat{}.Matrix),
		"v4l2_pix_format.quantization", unsafe.Offsetof(SingleFormat{}.Quantization),
		"v4l2_pix_format_mplane", unsafe.Sizeof(MultiFormat{}), "v4l2_pix_format_mplane.plane_fmt", unsafe.Offsetof(MultiFormat{}.Planes),
		"v4l2_pix_format_mplane.num_planes", unsafe.Offsetof(MultiFormat{}.Count), "v4l2_pix_format_mplane.ycbcr_enc", unsafe.Offsetof(MultiFormat{}.Matrix),
		"v4l2_pix_format_mplane.quantization", unsafe.Offsetof(MultiFormat{}.Quantization),
		"v4l2_plane_pix_format", unsafe.Sizeof(PlaneFormat{}), "v4l2_plane_pix_format.bytesperline", unsafe.Offsetof(PlaneFormat{}.Stride),
		"v4l2_format", unsafe.Sizeof(Format{}), "v4l2_format.fmt", unsafe.Offsetof(Format{}.data),
		"v4l2_requestbuffers", unsafe.Sizeof(RequestBuffers{}), "v4l2_requestbuffers.capabilities", unsafe.Offsetof(RequestBuffers{}.Capabilities),
		"v4l2_buffer", unsafe.Sizeof(Buffer{}), "v4l2_buffer.timestamp", unsafe.Offsetof(Buffer{}.Seconds), "v4l2_buffer.sequence", unsafe.Offsetof(Buffer{}.Sequence),
		"v4l2_buffer.memory", unsafe.Offsetof(Buffer{}.Memory), "v4l2_buffer.m", unsafe.Offsetof(Buffer{}.At), "v4l2_buffer.length", unsafe.Offsetof(Buffer{}.Length),
		"v4l2_plane", unsafe.Sizeof(Plane{}), "v4l2_plane.m", unsafe.Offsetof(Plane{}.At), "v4l2_plane.data_offset", unsafe.Offsetof(Plane{}.Offset),
		"v4l2_exportbuffer", unsafe.Sizeof(ExportBuffer{}), "v4l2_exportbuffer.plane", unsafe.Offsetof(ExportBuffer{}.Plane),
		"v4l2_exportbuffer.fd", unsafe.Offsetof(ExportBuffer{}.FD),
		"v4l2_event_subscription", unsafe.Sizeof(Subscription{}), "v4l2_event_subscription.id", unsafe.Offsetof(Subscription{}.ID),
		"v4l2_event", unsafe.Sizeof(Event{}), "v4l2_event.u", unsafe.Offsetof(Event{}.Data), "v4l2_event.pending", unsafe.Offsetof(Event{}.Pending),
		"v4l2_event.timestamp", unsafe.Offsetof(Event{}.Seconds), "v4l2_event.id", unsafe.Offsetof(Event{}.ID),
		"v4l2_streamparm", unsafe.Sizeof(StreamParameters{}), "v4l2_streamparm.parm.output.timeperframe", unsafe.Offsetof(StreamParameters{}.Numerator),
		"v4l2_streamparm.parm.capture.timeperframe", unsafe.Offsetof(StreamParameters{}.Numerator),
		"v4l2_streamparm.parm.capture.capability", unsafe.Offsetof(StreamParameters{}.Capability),
		"v4l2_dv_timings", unsafe.Sizeof(Timings{}), "v4l2_dv_timings.bt.width", unsafe.Offsetof(Timings{}.Width),
		"v4l2_selection", unsafe.Sizeof(Selection{}), "v4l2_selection.r", unsafe.Offsetof(Selection{}.Left),
		"v4l2_ext_control", unsafe.Sizeof(Control{}), "v4l2_ext_control.value", unsafe.Offsetof(Control{}.Value),
		"v4l2_ext_controls", unsafe.Sizeof(ControlList{}), "v4l2_ext_controls.controls", unsafe.Offsetof(ControlList{}.List),
		"v4l2_query_ext_ctrl", unsafe.Sizeof(QueryControl{}), "v4l2_query_ext_ctrl.name", unsafe.Offsetof(QueryControl{}.Name),
		"v4l2_query_ext_ctrl.minimum", unsafe.Offsetof(QueryControl{}.Minimum), "v4l2_query_ext_ctrl.step", unsafe.Offsetof(QueryControl{}.Step),
		"v4l2_query_ext_ctrl.flags", unsafe.Offsetof(QueryControl{}.Flags), "v4l2_query_ext_ctrl.elem_size", unsafe.Offsetof(QueryControl{}.ElementSize),
		"v4l2_query_ext_ctrl.elems", unsafe.Offsetof(QueryControl{}.Elements), "v4l2_query_ext_ctrl.dims", unsafe.Offsetof(QueryControl{}.Dims),
		"v4l2_querymenu", unsafe.Sizeof(QueryMenu{}), "v4l2_querymenu.name", unsafe.Offsetof(QueryMenu{}.Name),
		"v4l2_frmsizeenum", unsafe.Sizeof(FrameSize{}), "v4l2_frmsizeenum.discrete", unsafe.Offsetof(FrameSize{}.Size),
		"v4l2_frmsizeenum.stepwise.max_height", unsafe.Offsetof(FrameSize{}.Size) + 4*unsafe.Sizeof(uint32(0)),
		"v4l2_frmivalenum", unsafe.Sizeof(FrameInterval{}), "v4l2_frmivalenum.discrete", unsafe.Offsetof(FrameInterval{}.Interval),
		"v4l2_encoder_cmd", unsafe.Sizeof(Command{}),
		"v4l2_subdev_format", unsafe.Sizeof(SubdeviceFormat{}), "v4l2_subdev_format.format.width", unsafe.Offsetof(SubdeviceFormat{}.Width),
		"v4l2_subdev_format.format.code", unsafe.Offsetof(SubdeviceFormat{}.Code), "v4l2_subdev_format.format.colorspace", unsafe.Offsetof(SubdeviceFormat{}.Colors),
		"media_v2_topology", unsafe.Sizeof(mediaTopology{}), "media_v2_topology.ptr_entities", unsafe.Offsetof(mediaTopology{}.entitiesAt),
		"media_v2_topology.ptr_interfaces", unsafe.Offsetof(mediaTopology{}.interfacesAt), "media_v2_topology.ptr_pads", unsafe.Offsetof(mediaTopology{}.padsAt),
		"media_v2_topology.ptr_links", unsafe.Offsetof(mediaTopology{}.linksAt),
		"media_v2_entity", unsafe.Sizeof(mediaEntity{}), "media_v2_entity.name", unsafe.Offsetof(mediaEntity{}.name),
		"media_v2_entity.function", unsafe.Offsetof(mediaEntity{}.function),
		"media_v2_interface", unsafe.Sizeof(mediaInterface{}), "media_v2_interface.intf_type", unsafe.Offsetof(mediaInterface{}.kind),
		"media_v2_interface.devnode", unsafe.Offsetof(mediaInterface{}.major),
		"media_v2_pad", unsafe.Sizeof(mediaPad{}), "media_v2_pad.entity_id", unsafe.Offsetof(mediaPad{}.entity), "media_v2_pad.flags", unsafe.Offsetof(mediaPad{}.flags),
		"media_v2_pad.index", unsafe.Offsetof(mediaPad{}.index),
		"media_v2_link", unsafe.Sizeof(mediaLink{}), "media_v2_link.source_id", unsafe.Offsetof(mediaLink{}.source),
		"media_v2_link.sink_id", unsafe.Offsetof(mediaLink{}.sink), "media_v2_link.flags", unsafe.Offsetof(mediaLink{}.flags),
	}
}

func numbers() []any {
	return []any{
		"V4L2_CAP_VIDEO_CAPTURE", CanCapture, "V4L2_CAP_VIDEO_CAPTURE_MPLANE", CanCaptureMulti, "V4L2_CAP_VIDEO_M2M_MPLANE", CanMulti, "V4L2_CAP_VIDEO_M2M", CanSingle,
		"V4L2_CAP_STREAMING", CanStream, "V4L2_CAP_IO_MC", IsMediaCentric, "V4L2_CAP_DEVICE_CAPS", uint32(HasDevice),
		"V4L2_BUF_TYPE_VIDEO_CAPTURE", Capture, "V4L2_BUF_TYPE_VIDEO_OUTPUT", Output, "V4L2_BUF_TYPE_VIDEO_CAPTURE_MPLANE", CaptureMulti,
		"V4L2_BUF_TYPE_VIDEO_OUTPUT_MPLANE", OutputMulti,
		"VIDEO_MAX_PLANES", MaxPlanes, "V4L2_FIELD_NONE", FieldNone, "V4L2_FIELD_ANY", FieldAny, "V4L2_PIX_FMT_PRIV_MAGIC", uint32(HasPrivate),
		"V4L2_COLORSPACE_SMPTE170M", ColorsSMPTE170M, "V4L2_COLORSPACE_REC709", ColorsREC709, "V4L2_COLORSPACE_JPEG", ColorsJPEG, "V4L2_COLORSPACE_DCI_P3", ColorsDCIP3,
		"V4L2_COLORSPACE_SMPTE240M", ColorsSMPTE240M, "V4L2_COLORSPACE_BT2020", ColorsBT2020, "V4L2_YCBCR_ENC_XV601", MatrixXV601, "V4L2_YCBCR_ENC_XV709", MatrixXV709,
		"V4L2_YCBCR_ENC_BT2020", MatrixOf2020, "V4L2_YCBCR_ENC_BT2020_CONST_LUM", MatrixOf2020Constant, "V4L2_YCBCR_ENC_SMPTE240M", MatrixOf240M,
		"V4L2_YCBCR_ENC_601", MatrixOf601, "V4L2_YCBCR_ENC_709", MatrixOf709, "V4L2_QUANTIZATION_FULL_RANGE", FullRange, "V4L2_QUANTIZATION_LIM_RANGE", LimitedRange,
		"V4L2_MEMORY_MMAP", MemoryMapped, "V4L2_MEMORY_USERPTR", MemoryUser,
		"V4L2_BUF_FLAG_MAPPED", FlagMapped, "V4L2_BUF_FLAG_QUEUED", FlagQueued, "V4L2_BUF_FLAG_DONE", FlagDone, "V4L2_BUF_FLAG_ERROR", FlagError,
		"V4L2_BUF_FLAG_LAST", FlagLast, "V4L2_BUF_FLAG_TIMESTAMP_MASK", FlagStamps, "V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC", FlagStampMonotone,
		"V4L2_BUF_FLAG_TIMESTAMP_COPY", FlagStampCopy, "V4L2_BUF_FLAG_TSTAMP_SRC_MASK", FlagStampSources, "V4L2_BUF_FLAG_TSTAMP_SRC_SOE", FlagStampStart,
		"V4L2_ENC_CMD_STOP", CommandStop, "V4L2_EVENT_EOS", EventEnd, "V4L2_EVENT_SOURCE_CHANGE", EventSourceChange, "V4L2_CAP_TIMEPERFRAME", CanSetRate,
		"V4L2_FRMSIZE_TYPE_DISCRETE", Discrete, "V4L2_FRMIVAL_TYPE_DISCRETE", Discrete, "V4L2_SUBDEV_FORMAT_ACTIVE", Active,
		"VIDIOC_QUERYCAP", QueryCapabilities, "VIDIOC_ENUM_FMT", ListFormats, "VIDIOC_G_FMT", GetFormat, "VIDIOC_S_FMT", SetFormat, "VIDIOC_REQBUFS", MakeBuffers,
		"VIDIOC_QUERYBUF", QueryBuffer, "VIDIOC_EXPBUF", Export, "VIDIOC_QBUF", Enqueue, "VIDIOC_DQBUF", Dequeue, "VIDIOC_STREAMON", StreamOn,
		"VIDIOC_STREAMOFF", StreamOff, "VIDIOC_G_PARM", GetParameters, "VIDIOC_S_PARM", SetParameters, "VIDIOC_QUERYMENU", QueryMenuItem, "VIDIOC_G_EXT_CTRLS", GetControls,
		"VIDIOC_S_EXT_CTRLS", SetControls, "VIDIOC_ENUM_FRAMESIZES", ListSizes, "VIDIOC_ENUM_FRAMEINTERVALS", ListIntervals, "VIDIOC_ENCODER_CMD", EncoderCommand,
		"VIDIOC_DQEVENT", DequeueEvent, "VIDIOC_SUBSCRIBE_EVENT", Subscribe, "VIDIOC_S_SELECTION", SetSelection, "VIDIOC_QUERY_EXT_CTRL", DescribeControl,
		"VIDIOC_S_DV_TIMINGS", SetTimings, "VIDIOC_QUERY_DV_TIMINGS", QueryTimings,
		"VIDIOC_SUBDEV_G_FMT", GetSubdeviceFormat, "MEDIA_IOC_G_TOPOLOGY", getTopology,
		"V4L2_CID_GAIN", Gain, "V4L2_CID_EXPOSURE", Exposure, "V4L2_CID_AUTOGAIN", AutoGain, "V4L2_CID_EXPOSURE_AUTO", ExposureAuto,
		"V4L2_CID_EXPOSURE_ABSOLUTE", ExposureAbsolute, "V4L2_CID_VBLANK", VerticalBlank, "V4L2_CID_HBLANK", HorizontalBlank, "V4L2_CID_ANALOGUE_GAIN", AnalogGain,
		"V4L2_CID_PIXEL_RATE", PixelRate, "V4L2_EXPOSURE_MANUAL", ExposureManual, "V4L2_CTRL_CLASS_CAMERA | 0x2000", tegraBase,
		"V4L2_CTRL_TYPE_INTEGER", typeInteger, "V4L2_CTRL_TYPE_BOOLEAN", typeBoolean, "V4L2_CTRL_TYPE_MENU", typeMenu, "V4L2_CTRL_TYPE_BUTTON", typeButton,
		"V4L2_CTRL_TYPE_INTEGER64", typeInteger64, "V4L2_CTRL_TYPE_CTRL_CLASS", typeClass, "V4L2_CTRL_TYPE_BITMASK", typeBitmask,
		"V4L2_CTRL_TYPE_INTEGER_MENU", typeIntegerMenu, "V4L2_CTRL_TYPE_U32", typeU32,
		"V4L2_CTRL_FLAG_DISABLED", flagDisabled, "V4L2_CTRL_FLAG_READ_ONLY", flagReadOnly, "V4L2_CTRL_FLAG_INACTIVE", flagInactive,
		"V4L2_CTRL_FLAG_MODIFY_LAYOUT", flagLayout, "V4L2_CTRL_FLAG_NEXT_CTRL", uint32(nextControl), "V4L2_CTRL_FLAG_NEXT_COMPOUND", nextCompound,
		"MEDIA_ENT_F_CAM_SENSOR", isSensor, "MEDIA_PAD_FL_SINK", padSink, "MEDIA_LNK_FL_ENABLED", linkEnabled, "MEDIA_LNK_FL_IMMUTABLE", linkImmutable,
		"MEDIA_LNK_FL_LINK_TYPE", uint32(linkKinds), "MEDIA_LNK_FL_INTERFACE_LINK", linkInterface, "MEDIA_INTF_T_V4L_VIDEO", interfaceNode,
		"MEDIA_INTF_T_V4L_SUBDEV", interfaceSub,
	}
}
