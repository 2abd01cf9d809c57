// SPDX-License-Identifier: Apache-2.0

package codec

// The structs and constants of wels/codec_app_def.h and wels/codec_def.h in the releases from 2.1 (libopenh264.so.6) to
// 2.6 (libopenh264.so.8). Where releases only append fields, the struct has those of all, so that every release finds the
// memory that it reads and writes. TestLayout compares the structs with the headers.

const (
	maxSlices       = 35  // MAX_SLICES_NUM_TMP
	maxSpatial      = 4   // MAX_SPATIAL_LAYER_NUM
	maxFrameLayers  = 128 // MAX_LAYER_NUM_OF_FRAME
	optionFormat    = 0   // ENCODER_OPTION_DATAFORMAT
	optionBitrate   = 5   // ENCODER_OPTION_BITRATE
	allLayers       = 4   // SPATIAL_LAYER_ALL
	optionTrace     = 25  // ENCODER_OPTION_TRACE_LEVEL
	traceErrors     = 1   // WELS_LOG_ERROR
	formatI420      = 23  // videoFormatI420
	frameSkipped    = 4   // videoFrameTypeSkip
	usageCamera     = 0   // CAMERA_VIDEO_REAL_TIME
	rateBits        = 1   // RC_BITRATE_MODE
	profileBaseline = 66  // PRO_BASELINE
	slicesFixed     = 1   // SM_FIXEDSLCNUM_SLICE
	constantID      = 0   // CONSTANT_ID
	videoUndefined  = 5   // VF_UNDEF
	colorBT709      = 1   // CP_BT709, TRC_BT709, CM_BT709
	colorSMPTE170M  = 6   // CP_SMPTE170M, TRC_SMPTE170M, CM_SMPTE170M
)

// sliceArgument is SSliceArgument.
type sliceArgument struct {
	mode      int32
	count     uint32
	blocks    [maxSlices]uint32
	sizeLimit uint32
}

// spatialLayer is SSpatialLayerConfig.
type spatialLayer struct {
	width, height   int32
	frameRate       float32
	bitrate         int32
	maxBitrate      int32
	profile         int32
	level           int32
	qp              int32
	slices          sliceArgument
	videoSignal     bool
	videoFormat     uint8
	fullRange       bool
	colorsGiven     bool
	primaries       uint8
	transfer        uint8
	matrix          uint8
	aspectGiven     bool
	aspect          int32
	aspectExtWidth  uint16
	aspectExtHeight uint16
}

// parameters is SEncParamExt.
type parameters struct {
	usage              int32
	width, height      int32
	bitrate            int32
	rateControl        int32
	maxFrameRate       float32
	temporalLayers     int32
	spatialLayers      int32
	layers             [maxSpatial]spatialLayer
	complexity         int32
	intraPeriod        uint32
	references         int32
	parameterSets      int32
	prefixNAL          bool
	ssei               bool
	simulcast          bool
	padding            int32
	entropy            int32
	frameSkip          bool
	maxBitrate         int32
	maxQP, minQP       int32
	maxNAL             uint32
	longTerm           bool
	longTermReferences int32
	longTermPeriod     uint32
	threads            uint16
	loadBalancing      bool
	loopFilterOff      int32
	loopFilterAlpha    int32
	loopFilterBeta     int32
	denoise            bool
	background         bool
	adaptiveQuant      bool
	cropping           bool
	sceneChange        bool
	losslessLink       bool
	fixOvershoot       bool    // since libopenh264.so.7
	idrRatio           int32   // since libopenh264.so.7
	psnr               [3]bool // since libopenh264.so.8
}

// bitrateInfo is SBitrateInfo.
type bitrateInfo struct{ layer, bits int32 }

// layerInfo is SLayerBSInfo up to libopenh264.so.7.
type layerInfo struct {
	temporal, spatial, quality uint8
	frameType                  int32
	kind                       uint8
	subSequence                int32
	units                      int32
	lengths                    uintptr
	data                       uintptr
}

// measuredLayerInfo is SLayerBSInfo since libopenh264.so.8.
type measuredLayerInfo struct {
	layerInfo
	psnr [3]float32
}

// frameInfo is SFrameBSInfo with the library's SLayerBSInfo.
type frameInfo[Layer layerInfo | measuredLayerInfo] struct {
	count     int32
	layers    [maxFrameLayers]Layer
	frameType int32
	size      int32
	timestamp int64
}

// sourcePicture is SSourcePicture.
type sourcePicture struct {
	format        int32
	strides       [4]int32
	planes        [4]uintptr
	width, height int32
	timestamp     int64
	psnr          [3]bool // since libopenh264.so.8
}

// method is an index into the table ISVCEncoderVtbl.
type method int

const (
	_ method = iota // Initialize
	initializeExt
	getDefaultParams
	uninitialize
	encodeFrame
	encodeParameterSets
	forceIntraFrame
	setOption
	_ // GetOption
	methodCount
)
