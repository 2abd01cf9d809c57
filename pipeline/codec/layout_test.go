// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"fmt"
	"os"
	"testing"
	"unsafe"

	"github.com/tegracast/tegracast/cudahost/headertest"
)

// TestLayout compares the structs passed to openh264 with its headers.
func TestLayout(t *testing.T) {
	const header = "/usr/include/wels/codec_api.h"
	if _, err := os.Stat(header); err != nil {
		t.Fatalf("%v (make setup-test installs libopenh264-dev)", err)
	}
	out := headertest.Output(t, "testdata/layout.c")
	text := ""
	for _, f := range append(append(paramLayout(), streamLayout()...), numbers()...) {
		text += fmt.Sprintf("%s %d\n", f.name, f.n)
	}
	if out != text {
		t.Errorf("the headers have\n%s, and the package\n%s", out, text)
	}
}

type field struct {
	name string
	n    uintptr
}

func paramLayout() []field {
	var (
		s sliceArgument
		l spatialLayer
		p parameters
	)
	return []field{
		{"SSliceArgument", unsafe.Sizeof(s)},
		{"SSliceArgument.uiSliceNum", unsafe.Offsetof(s.count)},
		{"SSliceArgument.uiSliceSizeConstraint", unsafe.Offsetof(s.sizeLimit)},
		{"SSpatialLayerConfig", unsafe.Sizeof(l)},
		{"SSpatialLayerConfig.fFrameRate", unsafe.Offsetof(l.frameRate)},
		{"SSpatialLayerConfig.iSpatialBitrate", unsafe.Offsetof(l.bitrate)},
		{"SSpatialLayerConfig.uiProfileIdc", unsafe.Offsetof(l.profile)},
		{"SSpatialLayerConfig.sSliceArgument", unsafe.Offsetof(l.slices)},
		{"SSpatialLayerConfig.bVideoSignalTypePresent", unsafe.Offsetof(l.videoSignal)},
		{"SSpatialLayerConfig.bFullRange", unsafe.Offsetof(l.fullRange)},
		{"SSpatialLayerConfig.uiColorMatrix", unsafe.Offsetof(l.matrix)},
		{"SSpatialLayerConfig.eAspectRatio", unsafe.Offsetof(l.aspect)},
		{"SEncParamExt", unsafe.Sizeof(p)},
		{"SEncParamExt.iRCMode", unsafe.Offsetof(p.rateControl)},
		{"SEncParamExt.fMaxFrameRate", unsafe.Offsetof(p.maxFrameRate)},
		{"SEncParamExt.sSpatialLayers", unsafe.Offsetof(p.layers)},
		{"SEncParamExt.iComplexityMode", unsafe.Offsetof(p.complexity)},
		{"SEncParamExt.uiIntraPeriod", unsafe.Offsetof(p.intraPeriod)},
		{"SEncParamExt.iNumRefFrame", unsafe.Offsetof(p.references)},
		{"SEncParamExt.eSpsPpsIdStrategy", unsafe.Offsetof(p.parameterSets)},
		{"SEncParamExt.bEnableFrameSkip", unsafe.Offsetof(p.frameSkip)},
		{"SEncParamExt.iMaxBitrate", unsafe.Offsetof(p.maxBitrate)},
		{"SEncParamExt.uiMaxNalSize", unsafe.Offsetof(p.maxNAL)},
		{"SEncParamExt.iMultipleThreadIdc", unsafe.Offsetof(p.threads)},
		{"SEncParamExt.bUseLoadBalancing", unsafe.Offsetof(p.loadBalancing)},
		{"SEncParamExt.bEnableSceneChangeDetect", unsafe.Offsetof(p.sceneChange)},
		{"SEncParamExt.iIdrBitrateRatio", unsafe.Offsetof(p.idrRatio)},
	}
}

func streamLayout() []field {
	var (
		b bitrateInfo
		l layerInfo
		f frameInfo
		s sourcePicture
	)
	const word = unsafe.Sizeof(uintptr(0))
	return []field{
		{"SBitrateInfo", unsafe.Sizeof(b)},
		{"SBitrateInfo.iBitrate", unsafe.Offsetof(b.bits)},
		{"SLayerBSInfo", unsafe.Sizeof(l)},
		{"SLayerBSInfo.iNalCount", unsafe.Offsetof(l.units)},
		{"SLayerBSInfo.pNalLengthInByte", unsafe.Offsetof(l.lengths)},
		{"SLayerBSInfo.pBsBuf", unsafe.Offsetof(l.data)},
		{"SFrameBSInfo", unsafe.Sizeof(f)},
		{"SFrameBSInfo.sLayerInfo", unsafe.Offsetof(f.layers)},
		{"SFrameBSInfo.eFrameType", unsafe.Offsetof(f.frameType)},
		{"SFrameBSInfo.uiTimeStamp", unsafe.Offsetof(f.timestamp)},
		{"SSourcePicture", unsafe.Sizeof(s)},
		{"SSourcePicture.pData", unsafe.Offsetof(s.planes)},
		{"SSourcePicture.iPicWidth", unsafe.Offsetof(s.width)},
		{"SSourcePicture.uiTimeStamp", unsafe.Offsetof(s.timestamp)},
		{"ISVCEncoderVtbl.InitializeExt", uintptr(initializeExt) * word},
		{"ISVCEncoderVtbl.GetDefaultParams", uintptr(getDefaultParams) * word},
		{"ISVCEncoderVtbl.Uninitialize", uintptr(uninitialize) * word},
		{"ISVCEncoderVtbl.EncodeFrame", uintptr(encodeFrame) * word},
		{"ISVCEncoderVtbl.EncodeParameterSets", uintptr(encodeParameterSets) * word},
		{"ISVCEncoderVtbl.ForceIntraFrame", uintptr(forceIntraFrame) * word},
		{"ISVCEncoderVtbl.SetOption", uintptr(setOption) * word},
		{"ISVCEncoderVtbl", uintptr(methodCount) * word},
	}
}

func numbers() []field {
	return []field{
		{"ENCODER_OPTION_DATAFORMAT", optionFormat},
		{"ENCODER_OPTION_BITRATE", optionBitrate},
		{"SPATIAL_LAYER_ALL", allLayers},
		{"ENCODER_OPTION_TRACE_LEVEL", optionTrace},
		{"WELS_LOG_ERROR", traceErrors},
		{"videoFormatI420", formatI420},
		{"videoFrameTypeSkip", frameSkipped},
		{"CAMERA_VIDEO_REAL_TIME", usageCamera},
		{"RC_BITRATE_MODE", rateBits},
		{"PRO_BASELINE", profileBaseline},
		{"SM_FIXEDSLCNUM_SLICE", slicesFixed},
		{"CONSTANT_ID", constantID},
		{"VF_UNDEF", videoUndefined},
		{"CM_BT709", colorBT709},
		{"CM_SMPTE170M", colorSMPTE170M},
	}
}
