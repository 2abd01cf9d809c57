// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

// mostBytes is the size above which tensors are refused.
const mostBytes = 1 << 31

// BindInput allocates memory for an input and binds it for all runs. info has the input's name and a fixed shape. The
// caller writes into the tensor's Data, which begins a page outside the Go heap, before each run; Close frees it.
func (s *Session) BindInput(info tensor.Info) (tensor.Tensor, error) {
	size, err := s.fits(info)
	if err != nil {
		return tensor.Tensor{}, err
	}
	data, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return tensor.Tensor{}, fmt.Errorf("input %s: %d bytes: %w", info, size, err)
	}
	s.memory = append(s.memory, data)
	return tensor.Tensor{Info: info, Data: data}, s.bind(info, s.cpu, uintptr(unsafe.Pointer(&data[0])), size, true)
}

// BindDeviceInput binds memory of the GPU, at the address of its device, for all runs. The caller has finished writing
// there when it calls Run, and frees it after Close.
func (s *Session) BindDeviceInput(info tensor.Info, address uintptr) error {
	size, err := s.fits(info)
	if err != nil {
		return err
	}
	if !s.gpu {
		return fmt.Errorf("input %s: memory of a GPU is for %s and %s", info, CUDA, TensorRT)
	}
	var memory uintptr
	name := cString("Cuda")
	err = s.own(&memory, releaseMemoryInfo, createMemoryInfo, uintptr(unsafe.Pointer(name)), allocatorDevice, 0, memoryDefault)
	if err != nil {
		return err
	}
	return s.bind(info, memory, address, size, false)
}

// fits returns the size of a tensor in bytes, or an error if it is not what an input of the model may be.
func (s *Session) fits(info tensor.Info) (int64, error) {
	size, err := info.Bytes(mostBytes)
	if err != nil {
		return 0, fmt.Errorf("input %w", err)
	}
	if _, twice := s.bound[info.Name]; twice || size == 0 {
		return 0, fmt.Errorf("input %s is empty, or bound already", info)
	}
	for _, in := range s.inputs {
		if in.Name != info.Name {
			continue
		}
		same := in.Type == info.Type && len(in.Shape) == len(info.Shape)
		for i := range in.Shape {
			same = same && (in.Shape[i] == tensor.Dynamic || in.Shape[i] == info.Shape[i])
		}
		if !same {
			return 0, fmt.Errorf("input %s does not fit the model's %s", info, in)
		}
		return size, nil
	}
	return 0, fmt.Errorf("the model has no input %q: it has %v", info.Name, s.inputs)
}

// bind binds size bytes at an address, in a kind of memory, to an input.
func (s *Session) bind(info tensor.Info, memory, address uintptr, size int64, host bool) error {
	shape := append(info.Shape[:len(info.Shape):len(info.Shape)], 0) // so that a scalar has an address
	b := binding{name: cString(info.Name), host: host}
	err := s.own(&b.value, releaseValue, createTensorWithData,
		memory, address, uintptr(size), uintptr(unsafe.Pointer(&shape[0])), uintptr(len(info.Shape)), uintptr(info.Type))
	if err != nil {
		return err
	}
	if err := s.r.try(bindInput, s.binding, uintptr(unsafe.Pointer(b.name)), b.value); err != nil {
		return err
	}
	s.bound[info.Name] = b
	return nil
}

// Run runs the model on its inputs, which must all be bound. It returns the outputs in the order of Outputs. Their data is
// valid until the next Run or Close. When ctx ends, Run ends after the node that the model has come to, with the context's
// error; kernels of a GPU are not interrupted.
func (s *Session) Run(ctx context.Context) ([]tensor.Tensor, error) {
	for _, in := range s.inputs {
		if _, ok := s.bound[in.Name]; !ok {
			return nil, fmt.Errorf("input %s is not bound", in)
		}
	}
	if ctx.Err() != nil {
		return nil, interrupted(ctx)
	}
	s.release()
	if err := s.rebind(); err != nil {
		return nil, err
	}
	terminated, asked := make(chan error, 1), false
	stop := context.AfterFunc(ctx, func() { terminated <- s.r.try(runOptionsSetTerminate, s.options) })
	err := s.r.try(runWithBinding, s.session, s.options, s.binding)
	if !stop() {
		asked = true
		err = errors.Join(err, <-terminated, s.r.try(runOptionsUnsetTerminate, s.options)) // ends: the function above sends
	}
	if err == nil && s.gpu {
		err = s.r.try(synchronizeBoundOutputs, s.binding)
	}
	switch {
	case err != nil && asked:
		return nil, interrupted(ctx)
	case err != nil:
		return nil, err
	}
	return s.outcome()
}

func interrupted(ctx context.Context) error {
	return fmt.Errorf("the model was interrupted: %w", context.Cause(ctx))
}

// rebind binds again what a run would not see. For a GPU, the library copies an input from the memory of the CPU when it is
// bound (IOBinding.cc, BindInput). It keeps an output for the next run, even if that has another shape.
func (s *Session) rebind() error {
	for _, b := range s.bound {
		if s.gpu && b.host {
			if err := s.r.try(bindInput, s.binding, uintptr(unsafe.Pointer(b.name)), b.value); err != nil {
				return err
			}
		}
	}
	if s.gpu {
		if err := s.r.try(synchronizeBoundInputs, s.binding); err != nil {
			return err
		}
	}
	for _, out := range s.outputs {
		if _, err := out.Bytes(mostBytes); err != nil {
			if err := s.bindOutput(out.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// outcome returns the outputs of a run.
func (s *Session) outcome() ([]tensor.Tensor, error) {
	var list, n uintptr
	err := s.r.try(getBoundOutputValues, s.binding, s.r.allocator, uintptr(unsafe.Pointer(&list)), uintptr(unsafe.Pointer(&n)))
	if err != nil {
		return nil, err
	}
	s.values = append(s.values, words(list, int(n))...)
	if list != 0 {
		if err := s.r.try(allocatorFree, s.r.allocator, list); err != nil {
			return nil, err
		}
	}
	if len(s.values) != len(s.outputs) {
		return nil, fmt.Errorf("ONNX Runtime returned %d outputs, and the model has %d", len(s.values), len(s.outputs))
	}
	s.results = s.results[:0]
	for i, value := range s.values {
		t, err := s.view(s.outputs[i].Name, value)
		if err != nil {
			return nil, err
		}
		s.results = append(s.results, t)
	}
	return s.results, nil
}

// view returns the tensor in an OrtValue, whose memory it shares.
func (s *Session) view(name string, value uintptr) (tensor.Tensor, error) {
	var info, data uintptr
	if err := s.r.try(getTensorTypeAndShape, value, uintptr(unsafe.Pointer(&info))); err != nil {
		return tensor.Tensor{}, fmt.Errorf("output %q: %w", name, err)
	}
	kind, shape, err := s.r.shape(info)
	s.r.call(releaseTensorTypeAndShape, info)
	if err != nil {
		return tensor.Tensor{}, fmt.Errorf("output %q: %w", name, err)
	}
	t := tensor.Tensor{Info: tensor.Info{Name: name, Type: kind, Shape: shape}}
	size, err := t.Bytes(mostBytes)
	if err == nil {
		err = s.r.try(getTensorMutableData, value, uintptr(unsafe.Pointer(&data)))
	}
	if err != nil {
		return tensor.Tensor{}, fmt.Errorf("output %w", err)
	}
	if size > 0 {
		t.Data = unsafe.Slice(*(**byte)(unsafe.Pointer(&data)), size)
	}
	return t, nil
}

// release frees the outputs of the last run.
func (s *Session) release() {
	for _, v := range s.values {
		s.r.call(releaseValue, v)
	}
	s.values = s.values[:0]
}
