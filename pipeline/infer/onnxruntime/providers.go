// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"fmt"
	"unsafe"
)

// addProvider adds the providers to the session's options, in the order in which the library asks them for each operator.
// The CPU is always the last. Names and values of options are in the pages of the providers
// (https://onnxruntime.ai/docs/execution-providers).
func (r *Runtime) addProvider(options uintptr, c SessionConfig, engines string) error {
	device := [2]string{"device_id", "0"}
	cuda := [][2]string{device, {"arena_extend_strategy", "kSameAsRequested"}}
	rt := [][2]string{device}
	if engines != "" {
		rt = append(rt, [2]string{"trt_engine_cache_enable", "1"}, [2]string{"trt_engine_cache_path", engines}, [2]string{"trt_timing_cache_enable", "1"})
	}
	switch c.Provider {
	case CPU:
		return nil
	case CUDA:
		return r.add(options, cuda, createCUDAOptions, updateCUDAOptions, appendCUDA, releaseCUDAOptions)
	case TensorRT:
		if err := r.add(options, rt, createTensorRTOptions, updateTensorRTOptions, appendTensorRT, releaseTensorRTOptions); err != nil {
			return err
		}
		return r.add(options, cuda, createCUDAOptions, updateCUDAOptions, appendCUDA, releaseCUDAOptions)
	}
	return fmt.Errorf("there is no provider %q", c.Provider)
}

// add adds a provider with its settings.
func (r *Runtime) add(options uintptr, settings [][2]string, create, update, add, release function) error {
	var provider uintptr
	if err := r.try(create, uintptr(unsafe.Pointer(&provider))); err != nil {
		return err
	}
	defer r.call(release, provider)
	keys, values := make([]*byte, len(settings)), make([]*byte, len(settings))
	for i, s := range settings {
		keys[i], values[i] = cString(s[0]), cString(s[1])
	}
	err := r.try(update, provider, uintptr(unsafe.Pointer(&keys[0])), uintptr(unsafe.Pointer(&values[0])), uintptr(len(settings)))
	if err != nil {
		return err
	}
	return r.try(add, options, provider)
}
