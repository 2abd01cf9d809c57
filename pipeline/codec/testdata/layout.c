// SPDX-License-Identifier: Apache-2.0
// Sizes and offsets of openh264's structs, for TestLayout. ABI is the number in the library's soname.
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <wels/codec_api.h>

#define SIZE(type) printf(#type " %zu\n", sizeof(type))
#define AT(type, field) printf(#type "." #field " %zu\n", offsetof(type, field))
#define NUMBER(name) printf(#name " %d\n", (int)(name))

int main(void) {
	SIZE(SSliceArgument);
	AT(SSliceArgument, uiSliceNum);
	AT(SSliceArgument, uiSliceSizeConstraint);
	SIZE(SSpatialLayerConfig);
	AT(SSpatialLayerConfig, fFrameRate);
	AT(SSpatialLayerConfig, iSpatialBitrate);
	AT(SSpatialLayerConfig, uiProfileIdc);
	AT(SSpatialLayerConfig, sSliceArgument);
	AT(SSpatialLayerConfig, bVideoSignalTypePresent);
	AT(SSpatialLayerConfig, bFullRange);
	AT(SSpatialLayerConfig, uiColorMatrix);
	AT(SSpatialLayerConfig, eAspectRatio);
	SIZE(SEncParamExt);
	AT(SEncParamExt, iRCMode);
	AT(SEncParamExt, fMaxFrameRate);
	AT(SEncParamExt, sSpatialLayers);
	AT(SEncParamExt, iComplexityMode);
	AT(SEncParamExt, uiIntraPeriod);
	AT(SEncParamExt, iNumRefFrame);
	AT(SEncParamExt, eSpsPpsIdStrategy);
	AT(SEncParamExt, bEnableFrameSkip);
	AT(SEncParamExt, iMaxBitrate);
	AT(SEncParamExt, uiMaxNalSize);
	AT(SEncParamExt, iMultipleThreadIdc);
	AT(SEncParamExt, bUseLoadBalancing);
	AT(SEncParamExt, bEnableSceneChangeDetect);
	AT(SEncParamExt, bIsLosslessLink);
#if ABI >= 7
	AT(SEncParamExt, bFixRCOverShoot);
	AT(SEncParamExt, iIdrBitrateRatio);
#endif
#if ABI >= 8
	AT(SEncParamExt, bPsnrY);
#endif
	SIZE(SBitrateInfo);
	AT(SBitrateInfo, iBitrate);
	SIZE(SLayerBSInfo);
	AT(SLayerBSInfo, iNalCount);
	AT(SLayerBSInfo, pNalLengthInByte);
	AT(SLayerBSInfo, pBsBuf);
#if ABI >= 8
	AT(SLayerBSInfo, rPsnr);
#endif
	SIZE(SFrameBSInfo);
	AT(SFrameBSInfo, sLayerInfo);
	AT(SFrameBSInfo, eFrameType);
	AT(SFrameBSInfo, uiTimeStamp);
	SIZE(SSourcePicture);
	AT(SSourcePicture, pData);
	AT(SSourcePicture, iPicWidth);
	AT(SSourcePicture, uiTimeStamp);
#if ABI >= 8
	AT(SSourcePicture, bPsnrY);
#endif
	AT(ISVCEncoderVtbl, InitializeExt);
	AT(ISVCEncoderVtbl, GetDefaultParams);
	AT(ISVCEncoderVtbl, Uninitialize);
	AT(ISVCEncoderVtbl, EncodeFrame);
	AT(ISVCEncoderVtbl, EncodeParameterSets);
	AT(ISVCEncoderVtbl, ForceIntraFrame);
	AT(ISVCEncoderVtbl, SetOption);
	SIZE(ISVCEncoderVtbl);
	NUMBER(ENCODER_OPTION_DATAFORMAT);
	NUMBER(ENCODER_OPTION_BITRATE);
	NUMBER(SPATIAL_LAYER_ALL);
	NUMBER(ENCODER_OPTION_TRACE_LEVEL);
	NUMBER(WELS_LOG_ERROR);
	NUMBER(videoFormatI420);
	NUMBER(videoFrameTypeSkip);
	NUMBER(CAMERA_VIDEO_REAL_TIME);
	NUMBER(RC_BITRATE_MODE);
	NUMBER(PRO_BASELINE);
	NUMBER(SM_FIXEDSLCNUM_SLICE);
	NUMBER(CONSTANT_ID);
	NUMBER(VF_UNDEF);
	NUMBER(CM_BT709);
	NUMBER(CM_SMPTE170M);
}
