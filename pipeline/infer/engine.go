// SPDX-License-Identifier: Apache-2.0

package infer

import (
	"context"
	"errors"
	"fmt"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer/onnxruntime"
	"github.com/tegracast/tegracast/pipeline/infer/preprocess"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
	"github.com/tegracast/tegracast/pipeline/share"
)

// An engine makes the model's input of frames and runs the model, with one provider.
type engine interface {
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

// newEngine loads the model with the provider, and runs it once, because the first run takes longer.
func (w *worker) newEngine(ctx context.Context) (e engine, err error) {
	session, err := w.runtime.NewSession(onnxruntime.SessionConfig{
		Model: w.task.Config.Model, Digest: w.plan.Model.Digest, Provider: w.task.Provider, Threads: w.task.Config.Threads, Cache: w.task.Config.Cache, Log: w.log,
	})
	if err != nil {
		return nil, err
	}
	if w.task.Provider == onnxruntime.CPU {
		e, err = newCPU(session, w.plan)
	} else {
		e, err = newGPU(session, w.plan, w.task.Config.Cache)
	}
	if err == nil {
		_, err = e.run(ctx)
	}
	if err != nil && e != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, err
}

// cpu runs a model on the CPU.
type cpu struct {
	session *onnxruntime.Session
	plan    *Plan
	input   tensor.Tensor
	pre     *preprocess.Preprocessor
}

func newCPU(s *onnxruntime.Session, p *Plan) (*cpu, error) {
	e := &cpu{session: s, plan: p}
	var err error
	e.input, err = s.BindInput(p.Input)
	return e, err
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

func (e *cpu) close() error { return e.session.Close() }

// gpu runs a model on a GPU, which reads the frames where they lie.
type gpu struct {
	session  *onnxruntime.Session
	plan     *Plan
	memory   *cudahost.CUDA
	compiler *cudahost.Compiler
	stream   *cudahost.Stream
	input    *cudahost.DeviceMemory
	kernel   *preprocess.Kernel
}

// newGPU returns an engine, with an error also if that must be closed.
func newGPU(s *onnxruntime.Session, p *Plan, cache string) (*gpu, error) {
	e := &gpu{session: s, plan: p}
	memory, err := cudahost.Open(cudahost.Config{Backend: "cuda"})
	if err != nil {
		return e, err
	}
	e.memory = memory.(*cudahost.CUDA)
	if e.compiler, err = e.memory.Device.NewCompiler(cache); err != nil {
		return e, err
	}
	if e.stream, err = e.memory.Device.NewStream(); err != nil {
		return e, err
	}
	size, err := p.Input.Bytes(mostInput)
	if err != nil {
		return e, err
	}
	if e.input, err = e.memory.Device.AllocDevice(int(size)); err != nil {
		return e, err
	}
	return e, s.BindDeviceInput(p.Input, e.input.Pointer)
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

func (e *gpu) close() error {
	err := e.session.Close()
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
