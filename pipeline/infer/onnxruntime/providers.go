// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"
)

// load loads a model. With TensorRT it prepares the folder of the engines, and reports while one is being made. Engines
// with which the model does not load, as those of another release of TensorRT, are removed once.
func (r *Runtime) load(c SessionConfig) (*Session, error) {
	if c.Provider != TensorRT || c.Cache == "" {
		return r.newSession(c, "")
	}
	if c.Digest == "" || strings.Trim(c.Digest, "0123456789abcdef") != "" {
		return nil, fmt.Errorf("engines are kept by the model's digest, and %q is none", c.Digest)
	}
	folder := filepath.Join(c.Cache, c.Digest)
	for {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, err
		}
		files, err := os.ReadDir(folder)
		if err != nil {
			return nil, err
		}
		made := slices.ContainsFunc(files, func(f os.DirEntry) bool { return filepath.Ext(f.Name()) == ".engine" })
		log := c.Log.With("model", c.Model, "folder", folder)
		stop := func() {}
		if !made {
			stop = every(10*time.Second, func(elapsed time.Duration) {
				log.Info("TensorRT makes an engine for this GPU, once; it takes minutes", "elapsed", elapsed)
			})
		}
		s, err := r.newSession(c, folder)
		stop()
		if status := (*StatusError)(nil); !made || !errors.As(err, &status) || status.Call != names[createSession] {
			return s, err
		}
		log.Warn("TensorRT's engines are removed and made again, as the model does not load with them", "err", err)
		if err := os.RemoveAll(folder); err != nil {
			return nil, err
		}
	}
}

// every calls do at once and then at each period, with the time since the first call, until stop is called.
func every(period time.Duration, do func(elapsed time.Duration)) (stop func()) {
	end, ended, began := make(chan struct{}), make(chan struct{}), time.Now()
	go func() {
		defer close(ended)
		t := time.NewTicker(period)
		defer t.Stop()
		do(0)
		for {
			select {
			case <-end:
				return
			case <-t.C:
				do(time.Since(began).Round(time.Second))
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// addProvider adds the providers to the session's options, in the order in which the library asks them for each operator.
// The CPU is always the last. Names and values of options are in the pages of the providers
// (https://onnxruntime.ai/docs/execution-providers).
func (r *Runtime) addProvider(options uintptr, c SessionConfig, engines string) error {
	device := [2]string{"device_id", strconv.Itoa(c.Device)}
	cuda := [][2]string{device, {"arena_extend_strategy", "kSameAsRequested"}}
	rt := [][2]string{device}
	if c.Memory > 0 {
		cuda = append(cuda, [2]string{"gpu_mem_limit", strconv.FormatInt(c.Memory, 10)})
		rt = append(rt, [2]string{"trt_max_workspace_size", strconv.FormatInt(c.Memory, 10)})
	}
	if c.FP16 {
		rt = append(rt, [2]string{"trt_fp16_enable", "1"})
	}
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
