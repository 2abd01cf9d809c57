// SPDX-License-Identifier: Apache-2.0

package onnxruntime

// apiVersion is the version of the C API that is asked for: that of release 1.17.
const apiVersion = 17

// A function is the place of a function in OrtApi, the table of the C API (onnxruntime_c_api.h). Releases add functions
// at its end and promise not to move the others: onnxruntime_c_api.cc asserts the size of the table of each version.
type function int

// The functions that are used, by the version of the table that brought them.
const (
	getErrorCode                   function = 1 // version 1, release 1.0: 0 to 101
	getErrorMessage                function = 2
	createEnv                      function = 3
	disableTelemetryEvents         function = 6
	createSession                  function = 7
	createSessionOptions           function = 10
	setSessionLogSeverityLevel     function = 22
	setGraphOptimizationLevel      function = 23
	setIntraOpNumThreads           function = 24
	setInterOpNumThreads           function = 25
	sessionGetInputCount           function = 30
	sessionGetOutputCount          function = 31
	sessionGetInputTypeInfo        function = 33
	sessionGetOutputTypeInfo       function = 34
	sessionGetInputName            function = 36
	sessionGetOutputName           function = 37
	createRunOptions               function = 39
	runOptionsSetTerminate         function = 46
	runOptionsUnsetTerminate       function = 47
	createTensorWithData           function = 49
	getTensorMutableData           function = 51
	castTypeInfoToTensorInfo       function = 55
	getTensorElementType           function = 60
	getDimensionsCount             function = 61
	getDimensions                  function = 62
	getTensorTypeAndShape          function = 65
	createMemoryInfo               function = 68
	createCPUMemoryInfo            function = 69
	allocatorFree                  function = 76
	getAllocatorWithDefaultOptions function = 78
	releaseEnv                     function = 92
	releaseStatus                  function = 93
	releaseMemoryInfo              function = 94
	releaseSession                 function = 95
	releaseValue                   function = 96
	releaseRunOptions              function = 97
	releaseTypeInfo                function = 98
	releaseTensorTypeAndShape      function = 99
	releaseSessionOptions          function = 100
	addFreeDimensionByName         function = 124 // version 3
	getAvailableProviders          function = 125 // version 4: 125 to 126
	releaseAvailableProviders      function = 126
	addSessionConfigEntry          function = 130 // version 5: 127 to 149
	runWithBinding                 function = 133
	createIoBinding                function = 134
	releaseIoBinding               function = 135
	bindInput                      function = 136
	bindOutputToDevice             function = 138
	getBoundOutputValues           function = 140
	appendTensorRT                 function = 170 // version 9: 170 to 191
	createTensorRTOptions          function = 171
	updateTensorRTOptions          function = 172
	releaseTensorRTOptions         function = 174
	synchronizeBoundInputs         function = 202 // version 10: 192 to 203
	synchronizeBoundOutputs        function = 203
	appendCUDA                     function = 204 // version 11: 204 to 209
	createCUDAOptions              function = 205
	updateCUDAOptions              function = 206
	releaseCUDAOptions             function = 208
	last17                         function = 275 // of version 17: SessionOptionsAppendExecutionProvider_OpenVINO_V2
)

// names are the functions' names in the header.
var names = [last17 + 1]string{
	getErrorCode:                   "GetErrorCode",
	getErrorMessage:                "GetErrorMessage",
	createEnv:                      "CreateEnv",
	disableTelemetryEvents:         "DisableTelemetryEvents",
	createSession:                  "CreateSession",
	createSessionOptions:           "CreateSessionOptions",
	setSessionLogSeverityLevel:     "SetSessionLogSeverityLevel",
	setGraphOptimizationLevel:      "SetSessionGraphOptimizationLevel",
	setIntraOpNumThreads:           "SetIntraOpNumThreads",
	setInterOpNumThreads:           "SetInterOpNumThreads",
	sessionGetInputCount:           "SessionGetInputCount",
	sessionGetOutputCount:          "SessionGetOutputCount",
	sessionGetInputTypeInfo:        "SessionGetInputTypeInfo",
	sessionGetOutputTypeInfo:       "SessionGetOutputTypeInfo",
	sessionGetInputName:            "SessionGetInputName",
	sessionGetOutputName:           "SessionGetOutputName",
	createRunOptions:               "CreateRunOptions",
	runOptionsSetTerminate:         "RunOptionsSetTerminate",
	runOptionsUnsetTerminate:       "RunOptionsUnsetTerminate",
	createTensorWithData:           "CreateTensorWithDataAsOrtValue",
	getTensorMutableData:           "GetTensorMutableData",
	castTypeInfoToTensorInfo:       "CastTypeInfoToTensorInfo",
	getTensorElementType:           "GetTensorElementType",
	getDimensionsCount:             "GetDimensionsCount",
	getDimensions:                  "GetDimensions",
	getTensorTypeAndShape:          "GetTensorTypeAndShape",
	createMemoryInfo:               "CreateMemoryInfo",
	createCPUMemoryInfo:            "CreateCpuMemoryInfo",
	allocatorFree:                  "AllocatorFree",
	getAllocatorWithDefaultOptions: "GetAllocatorWithDefaultOptions",
	releaseEnv:                     "ReleaseEnv",
	releaseStatus:                  "ReleaseStatus",
	releaseMemoryInfo:              "ReleaseMemoryInfo",
	releaseSession:                 "ReleaseSession",
	releaseValue:                   "ReleaseValue",
	releaseRunOptions:              "ReleaseRunOptions",
	releaseTypeInfo:                "ReleaseTypeInfo",
	releaseTensorTypeAndShape:      "ReleaseTensorTypeAndShapeInfo",
	releaseSessionOptions:          "ReleaseSessionOptions",
	addFreeDimensionByName:         "AddFreeDimensionOverrideByName",
	getAvailableProviders:          "GetAvailableProviders",
	releaseAvailableProviders:      "ReleaseAvailableProviders",
	addSessionConfigEntry:          "AddSessionConfigEntry",
	runWithBinding:                 "RunWithBinding",
	createIoBinding:                "CreateIoBinding",
	releaseIoBinding:               "ReleaseIoBinding",
	bindInput:                      "BindInput",
	bindOutputToDevice:             "BindOutputToDevice",
	getBoundOutputValues:           "GetBoundOutputValues",
	appendTensorRT:                 "SessionOptionsAppendExecutionProvider_TensorRT_V2",
	createTensorRTOptions:          "CreateTensorRTProviderOptions",
	updateTensorRTOptions:          "UpdateTensorRTProviderOptions",
	releaseTensorRTOptions:         "ReleaseTensorRTProviderOptions",
	synchronizeBoundInputs:         "SynchronizeBoundInputs",
	synchronizeBoundOutputs:        "SynchronizeBoundOutputs",
	appendCUDA:                     "SessionOptionsAppendExecutionProvider_CUDA_V2",
	createCUDAOptions:              "CreateCUDAProviderOptions",
	updateCUDAOptions:              "UpdateCUDAProviderOptions",
	releaseCUDAOptions:             "ReleaseCUDAProviderOptions",
}

// Constants of the header.
const (
	logWarning      = 2  // ORT_LOGGING_LEVEL_WARNING
	optimizeAll     = 99 // ORT_ENABLE_ALL
	allocatorDevice = 0  // OrtDeviceAllocator
	memoryDefault   = 0  // OrtMemTypeDefault
)

// codes are the names of OrtErrorCode.
var codes = []string{
	"ORT_OK", "ORT_FAIL", "ORT_INVALID_ARGUMENT", "ORT_NO_SUCHFILE", "ORT_NO_MODEL", "ORT_ENGINE_ERROR", "ORT_RUNTIME_EXCEPTION",
	"ORT_INVALID_PROTOBUF", "ORT_MODEL_LOADED", "ORT_NOT_IMPLEMENTED", "ORT_INVALID_GRAPH", "ORT_EP_FAIL",
}
