// SPDX-License-Identifier: Apache-2.0

// Prints what the package has of V4L2, as the kernel's header has it.
#include <linux/videodev2.h>
#include <stddef.h>
#include <stdio.h>

#define SIZE(t) printf(#t " %zu\n", sizeof(struct t))
#define AT(t, f) printf(#t "." #f " %zu\n", offsetof(struct t, f))
#define NUMBER(n) printf(#n " %lu\n", (unsigned long)(unsigned)(n))

int main(void)
{
	SIZE(v4l2_capability);
	AT(v4l2_capability, device_caps);
	SIZE(v4l2_fmtdesc);
	AT(v4l2_fmtdesc, pixelformat);
	SIZE(v4l2_pix_format);
	AT(v4l2_pix_format, bytesperline);
	AT(v4l2_pix_format, sizeimage);
	AT(v4l2_pix_format, ycbcr_enc);
	AT(v4l2_pix_format, quantization);
	SIZE(v4l2_pix_format_mplane);
	AT(v4l2_pix_format_mplane, plane_fmt);
	AT(v4l2_pix_format_mplane, num_planes);
	AT(v4l2_pix_format_mplane, ycbcr_enc);
	AT(v4l2_pix_format_mplane, quantization);
	SIZE(v4l2_plane_pix_format);
	AT(v4l2_plane_pix_format, bytesperline);
	SIZE(v4l2_format);
	AT(v4l2_format, fmt);
	SIZE(v4l2_requestbuffers);
	SIZE(v4l2_buffer);
	AT(v4l2_buffer, timestamp);
	AT(v4l2_buffer, memory);
	AT(v4l2_buffer, m);
	AT(v4l2_buffer, length);
	SIZE(v4l2_plane);
	AT(v4l2_plane, m);
	AT(v4l2_plane, data_offset);
	SIZE(v4l2_exportbuffer);
	AT(v4l2_exportbuffer, plane);
	AT(v4l2_exportbuffer, fd);
	SIZE(v4l2_event_subscription);
	AT(v4l2_event_subscription, type);
	SIZE(v4l2_streamparm);
	AT(v4l2_streamparm, parm.output.timeperframe);
	SIZE(v4l2_selection);
	AT(v4l2_selection, r);
	SIZE(v4l2_ext_control);
	AT(v4l2_ext_control, value);
	SIZE(v4l2_ext_controls);
	AT(v4l2_ext_controls, controls);
	SIZE(v4l2_encoder_cmd);
	NUMBER(V4L2_CAP_VIDEO_M2M_MPLANE);
	NUMBER(V4L2_CAP_VIDEO_M2M);
	NUMBER(V4L2_CAP_STREAMING);
	NUMBER(V4L2_CAP_DEVICE_CAPS);
	NUMBER(V4L2_BUF_TYPE_VIDEO_CAPTURE);
	NUMBER(V4L2_BUF_TYPE_VIDEO_OUTPUT);
	NUMBER(V4L2_BUF_TYPE_VIDEO_CAPTURE_MPLANE);
	NUMBER(V4L2_BUF_TYPE_VIDEO_OUTPUT_MPLANE);
	NUMBER(V4L2_FIELD_NONE);
	NUMBER(V4L2_PIX_FMT_PRIV_MAGIC);
	NUMBER(V4L2_COLORSPACE_SMPTE170M);
	NUMBER(V4L2_COLORSPACE_REC709);
	NUMBER(V4L2_YCBCR_ENC_601);
	NUMBER(V4L2_YCBCR_ENC_709);
	NUMBER(V4L2_QUANTIZATION_FULL_RANGE);
	NUMBER(V4L2_QUANTIZATION_LIM_RANGE);
	NUMBER(V4L2_MEMORY_MMAP);
	NUMBER(V4L2_BUF_FLAG_ERROR);
	NUMBER(V4L2_BUF_FLAG_LAST);
	NUMBER(V4L2_BUF_FLAG_TIMESTAMP_COPY);
	NUMBER(V4L2_ENC_CMD_STOP);
	NUMBER(V4L2_EVENT_EOS);
	NUMBER(VIDIOC_QUERYCAP);
	NUMBER(VIDIOC_ENUM_FMT);
	NUMBER(VIDIOC_S_FMT);
	NUMBER(VIDIOC_REQBUFS);
	NUMBER(VIDIOC_QUERYBUF);
	NUMBER(VIDIOC_EXPBUF);
	NUMBER(VIDIOC_QBUF);
	NUMBER(VIDIOC_DQBUF);
	NUMBER(VIDIOC_STREAMON);
	NUMBER(VIDIOC_STREAMOFF);
	NUMBER(VIDIOC_S_PARM);
	NUMBER(VIDIOC_S_EXT_CTRLS);
	NUMBER(VIDIOC_ENCODER_CMD);
	NUMBER(VIDIOC_SUBSCRIBE_EVENT);
	NUMBER(VIDIOC_S_SELECTION);
	NUMBER(V4L2_CID_MPEG_VIDEO_B_FRAMES);
	NUMBER(V4L2_CID_MPEG_VIDEO_GOP_SIZE);
	NUMBER(V4L2_CID_MPEG_VIDEO_BITRATE_MODE);
	NUMBER(V4L2_CID_MPEG_VIDEO_BITRATE);
	NUMBER(V4L2_CID_MPEG_VIDEO_FRAME_RC_ENABLE);
	NUMBER(V4L2_CID_MPEG_VIDEO_HEADER_MODE);
	NUMBER(V4L2_CID_MPEG_VIDEO_FORCE_KEY_FRAME);
	NUMBER(V4L2_CID_MPEG_VIDEO_H264_I_PERIOD);
	NUMBER(V4L2_CID_MPEG_VIDEO_H264_LEVEL);
	NUMBER(V4L2_CID_MPEG_VIDEO_H264_PROFILE);
	NUMBER(V4L2_CID_MPEG_MFC51_VIDEO_FORCE_FRAME_TYPE);
	NUMBER(V4L2_MPEG_VIDEO_H264_LEVEL_3_0);
	NUMBER(V4L2_MPEG_VIDEO_H264_LEVEL_5_2);
	NUMBER(V4L2_CID_MPEG_VIDEO_PREPEND_SPSPPS_TO_IDR);
	NUMBER(V4L2_MPEG_VIDEO_BITRATE_MODE_CBR);
	NUMBER(V4L2_MPEG_VIDEO_HEADER_MODE_JOINED_WITH_1ST_FRAME);
	NUMBER(V4L2_MPEG_VIDEO_H264_PROFILE_BASELINE);
	NUMBER(V4L2_MPEG_VIDEO_H264_PROFILE_CONSTRAINED_BASELINE);
	NUMBER(V4L2_PIX_FMT_YUV420);
	NUMBER(V4L2_PIX_FMT_YUV420M);
	NUMBER(V4L2_PIX_FMT_NV12);
	NUMBER(V4L2_PIX_FMT_NV12M);
	NUMBER(V4L2_PIX_FMT_H264);
	NUMBER(V4L2_PIX_FMT_FWHT);
	return 0;
}
