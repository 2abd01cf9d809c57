// SPDX-License-Identifier: Apache-2.0

package v4l2

import (
	"fmt"
	"testing"

	"github.com/tegracast/tegracast/cudahost/headertest"
	"github.com/tegracast/tegracast/pipeline/videodev"
)

// TestNumbers compares the numbers of controls and formats with the kernel's header.
func TestNumbers(t *testing.T) {
	text := ""
	for list := numbers(); len(list) > 0; list = list[2:] {
		text += fmt.Sprintln(list[0], list[1])
	}
	if out := headertest.Output(t, "testdata/numbers.c"); out != text {
		t.Errorf("the header has\n%s\nand the package\n%s", out, text)
	}
}

func numbers() []any {
	return []any{
		"V4L2_CID_MPEG_VIDEO_B_FRAMES", controlBFrames, "V4L2_CID_MPEG_VIDEO_GOP_SIZE", controlGOP, "V4L2_CID_MPEG_VIDEO_BITRATE_MODE", controlMode,
		"V4L2_CID_MPEG_VIDEO_BITRATE", controlBitrate, "V4L2_CID_MPEG_VIDEO_FRAME_RC_ENABLE", controlByFrame,
		"V4L2_CID_MPEG_VIDEO_HEADER_MODE", controlHeaders, "V4L2_CID_MPEG_VIDEO_FORCE_KEY_FRAME", controlForceKey,
		"V4L2_CID_MPEG_VIDEO_H264_I_PERIOD", controlPeriod, "V4L2_CID_MPEG_VIDEO_H264_LEVEL", controlLevel, "V4L2_CID_MPEG_VIDEO_H264_PROFILE", controlProfile,
		"V4L2_CID_MPEG_MFC51_VIDEO_FORCE_FRAME_TYPE", controlForceOld, "V4L2_MPEG_VIDEO_H264_LEVEL_3_0", level30, "V4L2_MPEG_VIDEO_H264_LEVEL_5_2", level52,
		"V4L2_CID_MPEG_VIDEO_PREPEND_SPSPPS_TO_IDR", controlSets, "V4L2_MPEG_VIDEO_BITRATE_MODE_CBR", modeConstant,
		"V4L2_MPEG_VIDEO_HEADER_MODE_JOINED_WITH_1ST_FRAME", headersJoined, "V4L2_MPEG_VIDEO_H264_PROFILE_BASELINE", profileBaseline,
		"V4L2_MPEG_VIDEO_H264_PROFILE_CONSTRAINED_BASELINE", profileConstrained,
		"V4L2_PIX_FMT_YUV420", pictureFormats[0], "V4L2_PIX_FMT_YUV420M", pictureFormats[1], "V4L2_PIX_FMT_NV12", pictureFormats[2],
		"V4L2_PIX_FMT_NV12M", pictureFormats[3], "V4L2_PIX_FMT_H264", h264, "V4L2_PIX_FMT_FWHT", videodev.Code("FWHT"),
	}
}
