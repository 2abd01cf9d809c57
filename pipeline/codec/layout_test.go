// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"unsafe"

	"github.com/tegracast/tegracast/cudahost/headertest"
)

// TestLayout compares the structs passed to openh264 with the headers of each release: Debian 12's (7), Debian 13's (8),
// and those of release 2.2 (6), which are Debian 12's without two fields.
func TestLayout(t *testing.T) {
	for abi, folder := range map[int]func(*testing.T) string{
		6: headers22,
		7: func(*testing.T) string { return "/usr/include" },
		8: func(t *testing.T) string { return filepath.Join(release26(t).Dir, "usr/include") },
	} {
		t.Run(fmt.Sprintf("libopenh264.so.%d", abi), func(t *testing.T) {
			out := headertest.Output(t, "testdata/layout.c", fmt.Sprintf("-DABI=%d", abi), "-I"+folder(t))
			text := ""
			for _, f := range slices.Concat(paramLayout(abi), streamLayout(abi), numbers()) {
				text += fmt.Sprintf("%s %d\n", f.name, f.n)
			}
			if out != text {
				t.Errorf("the headers have\n%s, and the package\n%s", out, text)
			}
		})
	}
}

// headers22 returns a folder with the headers of release 2.2, made from those of 2.3.1, which only add two fields.
func headers22(t *testing.T) string {
	t.Helper()
	added := regexp.MustCompile(`(?m)^.*(bFixRCOverShoot|iIdrBitrateRatio);.*\n`)
	dir := t.TempDir()
	for _, name := range []string{"codec_api.h", "codec_app_def.h", "codec_def.h"} {
		text, err := os.ReadFile(filepath.Join("/usr/include/wels", name))
		if err != nil {
			t.Fatalf("%v (make setup-test installs libopenh264-dev)", err)
		}
		if n := len(added.FindAll(text, -1)); (n == 2) != (name == "codec_app_def.h") {
			t.Fatalf("%s has %d of the fields that release 2.3.1 added", name, n)
		}
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "wels"), 0o755), os.WriteFile(filepath.Join(dir, "wels", name), added.ReplaceAll(text, nil), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

type field struct {
	name string
	n    uintptr
}

func paramLayout(abi int) []field {
	var (
		s sliceArgument
		l spatialLayer
		p parameters
	)
	const align = unsafe.Alignof(p)
	size := map[int]uintptr{6: (unsafe.Offsetof(p.fixOvershoot) + align - 1) / align * align, 7: unsafe.Offsetof(p.psnr), 8: unsafe.Sizeof(p)}
	list := []field{
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
		{"SEncParamExt", size[abi]},
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
		{"SEncParamExt.bIsLosslessLink", unsafe.Offsetof(p.losslessLink)},
	}
	if abi >= 7 {
		list = append(list, field{"SEncParamExt.bFixRCOverShoot", unsafe.Offsetof(p.fixOvershoot)}, field{"SEncParamExt.iIdrBitrateRatio", unsafe.Offsetof(p.idrRatio)})
	}
	if abi >= 8 {
		list = append(list, field{"SEncParamExt.bPsnrY", unsafe.Offsetof(p.psnr)})
	}
	return list
}

func streamLayout(abi int) []field {
	var (
		b bitrateInfo
		l layerInfo
		m measuredLayerInfo
		p frameInfo[layerInfo]
		f frameInfo[measuredLayerInfo]
		s sourcePicture
	)
	const word = unsafe.Sizeof(uintptr(0))
	list := []field{{"SBitrateInfo", unsafe.Sizeof(b)}, {"SBitrateInfo.iBitrate", unsafe.Offsetof(b.bits)}}
	layer := []field{
		{"SLayerBSInfo.iNalCount", unsafe.Offsetof(l.units)},
		{"SLayerBSInfo.pNalLengthInByte", unsafe.Offsetof(l.lengths)},
		{"SLayerBSInfo.pBsBuf", unsafe.Offsetof(l.data)},
	}
	picture := []field{
		{"SSourcePicture.pData", unsafe.Offsetof(s.planes)},
		{"SSourcePicture.iPicWidth", unsafe.Offsetof(s.width)},
		{"SSourcePicture.uiTimeStamp", unsafe.Offsetof(s.timestamp)},
	}
	if abi >= 8 {
		list = slices.Concat(list, []field{{"SLayerBSInfo", unsafe.Sizeof(m)}}, layer, []field{
			{"SLayerBSInfo.rPsnr", unsafe.Offsetof(m.psnr)},
			{"SFrameBSInfo", unsafe.Sizeof(f)},
			{"SFrameBSInfo.sLayerInfo", unsafe.Offsetof(f.layers)},
			{"SFrameBSInfo.eFrameType", unsafe.Offsetof(f.frameType)},
			{"SFrameBSInfo.uiTimeStamp", unsafe.Offsetof(f.timestamp)},
			{"SSourcePicture", unsafe.Sizeof(s)},
		}, picture, []field{{"SSourcePicture.bPsnrY", unsafe.Offsetof(s.psnr)}})
	} else {
		list = slices.Concat(list, []field{{"SLayerBSInfo", unsafe.Sizeof(l)}}, layer, []field{
			{"SFrameBSInfo", unsafe.Sizeof(p)},
			{"SFrameBSInfo.sLayerInfo", unsafe.Offsetof(p.layers)},
			{"SFrameBSInfo.eFrameType", unsafe.Offsetof(p.frameType)},
			{"SFrameBSInfo.uiTimeStamp", unsafe.Offsetof(p.timestamp)},
			{"SSourcePicture", unsafe.Offsetof(s.psnr)},
		}, picture)
	}
	return append(list, []field{
		{"ISVCEncoderVtbl.InitializeExt", uintptr(initializeExt) * word},
		{"ISVCEncoderVtbl.GetDefaultParams", uintptr(getDefaultParams) * word},
		{"ISVCEncoderVtbl.Uninitialize", uintptr(uninitialize) * word},
		{"ISVCEncoderVtbl.EncodeFrame", uintptr(encodeFrame) * word},
		{"ISVCEncoderVtbl.EncodeParameterSets", uintptr(encodeParameterSets) * word},
		{"ISVCEncoderVtbl.ForceIntraFrame", uintptr(forceIntraFrame) * word},
		{"ISVCEncoderVtbl.SetOption", uintptr(setOption) * word},
		{"ISVCEncoderVtbl", uintptr(methodCount) * word},
	}...)
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
