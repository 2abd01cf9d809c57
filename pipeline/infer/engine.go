// SPDX-License-Identifier: Apache-2.0

package infer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer/onnxruntime"
	"github.com/tegracast/tegracast/pipeline/infer/preprocess"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
	"github.com/tegracast/tegracast/pipeline/share"
)

// An engine makes the model's input of frames and runs the model, with one provider.
type engine interface {
	// bind makes a session the engine's, and binds the model's input. A session that it had before is closed.
	bind(s *onnxruntime.Session) error
	// register is for share.ClientConfig; nil: the engine reads frames on the CPU.
	register() func(memory []byte) (device uintptr, unregister func() error, err error)
	// start prepares for frames of a format.
	start(f pipeline.Format) error
	placement() tensor.Placement
	preprocess(f *share.SharedFrame) error
	// run returns the outputs, which are valid until the next call.
	run(ctx context.Context) ([]tensor.Tensor, error)
	close() error
}

// builtNames are ONNX Runtime's own names of the providers.
var builtNames = map[string]string{
	onnxruntime.CPU: "CPUExecutionProvider", onnxruntime.CUDA: "CUDAExecutionProvider", onnxruntime.TensorRT: "TensorrtExecutionProvider",
}

// newEngine loads the model with the provider, and runs it once, because the first run takes longer.
func (w *worker) newEngine(ctx context.Context) (e engine, err error) {
	c := &w.task.Config
	if built, err := w.runtime.Providers(); err != nil || !slices.Contains(built, builtNames[w.task.Provider]) {
		return nil, errors.Join(err, fmt.Errorf("this library was built without %s: it has %v", w.task.Provider, built))
	}
	e = &cpu{plan: w.plan}
	if w.task.Provider != onnxruntime.CPU {
		e = &gpu{plan: w.plan, cache: c.Cache}
	}
	s, err := w.runtime.NewSession(ctx, onnxruntime.SessionConfig{
		Model: c.Model, Digest: w.plan.Model.Digest, Provider: w.task.Provider, Threads: c.Threads, Cache: c.Cache, Log: w.log,
		Shape: w.plan.Input.Shape, Dimensions: w.plan.dimensions(), Bind: e.bind,
	})
	if err == nil {
		err = w.plan.is(s.Inputs(), s.Outputs())
	}
	if err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

// cpu runs a model on the CPU.
type cpu struct {
	session *onnxruntime.Session
	plan    *Plan
	input   tensor.Tensor
	pre     *preprocess.Preprocessor
}

func (e *cpu) bind(s *onnxruntime.Session) (err error) {
	e.session = s
	e.input, err = s.BindInput(e.plan.Input)
	return err
}

func (e *cpu) register() func([]byte) (uintptr, func() error, error) { return nil }

func (e *cpu) start(f pipeline.Format) (err error) {
	e.pre, err = e.plan.Preprocessor(f)
	return err
}

func (e *cpu) placement() tensor.Placement { return e.pre.Placement() }

func (e *cpu) preprocess(f *share.SharedFrame) error {
	e.pre.Process(f.Bytes, e.input.Data)
	return nil
}

func (e *cpu) run(ctx context.Context) ([]tensor.Tensor, error) { return e.session.Run(ctx) }

func (e *cpu) close() error {
	if e.session == nil {
		return nil
	}
	return e.session.Close()
}

// gpu runs a model on a GPU, which reads the frames where they lie.
type gpu struct {
	session  *onnxruntime.Session
	plan     *Plan
	cache    string
	memory   *cudahost.CUDA
	compiler *cudahost.Compiler
	stream   *cudahost.Stream
	input    *cudahost.DeviceMemory
	kernel   *preprocess.Kernel
}

func (e *gpu) bind(s *onnxruntime.Session) error {
	e.session = s
	if e.input == nil {
		if err := e.open(); err != nil {
			return err
		}
	}
	return s.BindDeviceInput(e.plan.Input, e.input.Pointer)
}

// open opens the GPU. After an error, too, close must be called.
func (e *gpu) open() error {
	memory, err := cudahost.Open(cudahost.Config{Backend: "cuda"})
	if err != nil {
		return err
	}
	e.memory = memory.(*cudahost.CUDA)
	if e.compiler, err = e.memory.Device.NewCompiler(e.cache); err != nil {
		return err
	}
	if e.stream, err = e.memory.Device.NewStream(); err != nil {
		return err
	}
	size, err := e.plan.Input.Bytes(mostInput)
	if err != nil {
		return err
	}
	e.input, err = e.memory.Device.AllocDevice(int(size))
	return err
}

// mostInput is the largest size of an input in bytes.
const mostInput = 1 << 30

func (e *gpu) register() func([]byte) (uintptr, func() error, error) {
	return e.memory.Device.RegisterReadOnly
}

func (e *gpu) start(f pipeline.Format) error {
	c, err := e.plan.preprocessing(f)
	if err != nil {
		return err
	}
	e.kernel, err = preprocess.NewKernel(e.memory.Device, e.compiler, c)
	return err
}

func (e *gpu) placement() tensor.Placement { return e.kernel.Placement() }

func (e *gpu) preprocess(f *share.SharedFrame) error {
	if f.Device == 0 {
		return fmt.Errorf("frame %d has no address for the GPU", f.Sequence)
	}
	if err := e.kernel.Enqueue(e.stream, f.Device, e.input.Pointer); err != nil {
		return err
	}
	return e.stream.Synchronize()
}

func (e *gpu) run(ctx context.Context) ([]tensor.Tensor, error) { return e.session.Run(ctx) }

func (e *gpu) close() (err error) {
	if e.session != nil {
		err = e.session.Close()
	}
	if e.kernel != nil {
		err = errors.Join(err, e.kernel.Close())
	}
	if e.input != nil {
		err = errors.Join(err, e.input.Close())
	}
	if e.stream != nil {
		err = errors.Join(err, e.stream.Close())
	}
	if e.memory != nil {
		err = errors.Join(err, e.memory.Close())
	}
	return err
}
