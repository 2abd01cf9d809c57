// SPDX-License-Identifier: Apache-2.0

package v4l2

import "github.com/tegracast/tegracast/pipeline/videodev"

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

// h264 is the four-character code of H.264.
var h264 = videodev.Code("H264")
