// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

// Providers that a session can use. What CUDA and TensorRT lack, the CPU computes.
const (
	CPU      = "cpu"
	CUDA     = "cuda"
	TensorRT = "tensorrt" // with CUDA for the operators that it lacks
)

// SessionConfig describes a session.
type SessionConfig struct {
	Model    string // path of a file that package onnx has read
	Digest   string // its digest
	Provider string // "": CPU
	Threads  int    // that compute on the CPU, with the one that calls Run; 0: one
	Cache    string // folder in which TensorRT's engines are kept, by digest and Shape; "": nowhere
	Log      *slog.Logger

	Shape      []int64              // that the input will have
	Dimensions map[string]int64     // sizes of dimensions that the model names and leaves open
	Bind       func(*Session) error // binds the inputs, after which the model runs once; nil: it does not run
}

// A Session is a loaded model with the memory of its inputs. Its methods are for one goroutine.
type Session struct {
	r       *Runtime
	gpu     bool
	inputs  []tensor.Info
	outputs []tensor.Info
	bound   map[string]binding // inputs
	values  []uintptr          // OrtValues of the outputs, until the next run
	results []tensor.Tensor

	session, binding, options, cpu uintptr // OrtSession, OrtIoBinding, OrtRunOptions, OrtMemoryInfo
	made                           uintptr // where the library writes an object
	owned                          []resource
	memory                         [][]byte
}

// A binding is an input that is bound.
type binding struct {
	name  *byte
	value uintptr // OrtValue
	host  bool    // in the memory of the CPU
}

// A resource is an object of the library, with the function that frees it.
type resource struct {
	free   function
	object uintptr
}

// config are the entries of the session's configuration (onnxruntime_session_options_config_keys.h).
var config = [][2]string{
	{"session.intra_op.allow_spinning", "0"}, // threads without work would keep processors busy
	{"session.inter_op.allow_spinning", "0"},
	{"session.load_model_format", "ONNX"}, // whatever the file's name and its first bytes are
}

// NewSession loads a model. With CUDA or TensorRT an error wraps ErrProvider, as it may be the provider's: the caller may
// try the CPU. TensorRT makes an engine for the GPU at first, which takes minutes and is logged. It makes it when the model is
// loaded, or, if the model leaves dimensions open that Dimensions lacks, in the first run: Bind is for that too. When ctx ends,
// the first run does, and the wait for another process that makes the same engine; loading does not.
func (r *Runtime) NewSession(ctx context.Context, c SessionConfig) (*Session, error) {
	c.Provider = cmp.Or(c.Provider, CPU)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s, err := r.load(ctx, c)
	if err != nil && c.Provider != CPU {
		err = fmt.Errorf("%w: %s: %w", ErrProvider, c.Provider, err)
	}
	return s, err
}

// load loads a model, and runs it once.
func (r *Runtime) load(ctx context.Context, c SessionConfig) (*Session, error) {
	if c.Provider != TensorRT || c.Cache == "" {
		return r.start(ctx, c, "")
	}
	e, err := openEngines(ctx, c)
	if err != nil {
		return nil, err
	}
	defer e.close()
	return e.use(ctx, func() (*Session, error) { return r.start(ctx, c, e.folder) })
}

// start is load with a folder for engines, which has been prepared.
func (r *Runtime) start(ctx context.Context, c SessionConfig, engines string) (*Session, error) {
	s, err := r.newSession(c, engines)
	if err != nil || c.Bind == nil {
		return s, err
	}
	if err = c.Bind(s); err == nil {
		_, err = s.Run(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// newSession loads a model with a provider whose folder has been prepared.
func (r *Runtime) newSession(c SessionConfig, engines string) (*Session, error) {
	var options uintptr
	if err := r.try(createSessionOptions, uintptr(unsafe.Pointer(&options))); err != nil {
		return nil, err
	}
	defer r.call(releaseSessionOptions, options)
	err := errors.Join(
		r.try(setSessionLogSeverityLevel, options, logWarning),
		r.try(setGraphOptimizationLevel, options, optimizeAll),
		r.try(setIntraOpNumThreads, options, uintptr(max(c.Threads, 1))),
		r.try(setInterOpNumThreads, options, 1),
	)
	for _, e := range config {
		err = errors.Join(err, r.try(addSessionConfigEntry, options, uintptr(unsafe.Pointer(cString(e[0]))), uintptr(unsafe.Pointer(cString(e[1])))))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Dimensions)) {
		err = errors.Join(err, r.try(addFreeDimensionByName, options, uintptr(unsafe.Pointer(cString(name))), uintptr(c.Dimensions[name])))
	}
	if err == nil {
		err = r.addProvider(options, c, engines)
	}
	if err != nil {
		return nil, err
	}
	s := &Session{r: r, gpu: c.Provider != CPU, bound: map[string]binding{}}
	if err := s.open(c.Model, options); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Session) open(model string, options uintptr) error {
	path := cString(model)
	if err := s.own(&s.session, releaseSession, createSession, s.r.env, uintptr(unsafe.Pointer(path)), options); err != nil {
		return err
	}
	var err error
	if s.inputs, err = s.describe(sessionGetInputCount, sessionGetInputName, sessionGetInputTypeInfo); err != nil {
		return err
	}
	if s.outputs, err = s.describe(sessionGetOutputCount, sessionGetOutputName, sessionGetOutputTypeInfo); err != nil {
		return err
	}
	if err := s.own(&s.options, releaseRunOptions, createRunOptions); err != nil {
		return err
	}
	if err := s.own(&s.cpu, releaseMemoryInfo, createCPUMemoryInfo, allocatorDevice, memoryDefault); err != nil {
		return err
	}
	if err := s.own(&s.binding, releaseIoBinding, createIoBinding, s.session); err != nil {
		return err
	}
	for _, out := range s.outputs {
		if err := s.bindOutput(out.Name); err != nil {
			return err
		}
	}
	return nil
}

// own makes an object with the function create, whose last argument is where the object is written, and stores it. Close
// frees it. Pointers may be converted to uintptr in the argument list.
//
//go:uintptrescapes
func (s *Session) own(object *uintptr, free, create function, args ...uintptr) error {
	if err := s.r.try(create, append(args, uintptr(unsafe.Pointer(&s.made)))...); err != nil {
		return err
	}
	*object = s.made
	s.owned = append(s.owned, resource{free, s.made})
	return nil
}

// bindOutput lets the library allocate an output in the memory of the CPU, in each run.
func (s *Session) bindOutput(name string) error {
	return s.r.try(bindOutputToDevice, s.binding, uintptr(unsafe.Pointer(cString(name))), s.cpu)
}

// Close frees the model and the memory of its inputs and outputs. It may be called twice.
func (s *Session) Close() error {
	s.release()
	for i := len(s.owned) - 1; i >= 0; i-- {
		s.r.call(s.owned[i].free, s.owned[i].object)
	}
	var err error
	for _, m := range s.memory {
		err = errors.Join(err, unix.Munmap(m))
	}
	s.owned, s.memory, s.bound = nil, nil, nil
	return err
}

// Inputs returns the inputs of the model.
func (s *Session) Inputs() []tensor.Info { return s.inputs }

// Outputs returns the outputs of the model.
func (s *Session) Outputs() []tensor.Info { return s.outputs }

// describe returns the inputs or outputs of the model.
func (s *Session) describe(count, name, info function) ([]tensor.Info, error) {
	var n uintptr
	if err := s.r.try(count, s.session, uintptr(unsafe.Pointer(&n))); err != nil {
		return nil, err
	}
	list := make([]tensor.Info, n)
	for i := range list {
		var at, description, shape uintptr
		if err := s.r.try(name, s.session, uintptr(i), s.r.allocator, uintptr(unsafe.Pointer(&at))); err != nil {
			return nil, err
		}
		list[i].Name = raw(at)
		if err := s.r.try(allocatorFree, s.r.allocator, at); err != nil {
			return nil, err
		}
		if err := s.r.try(info, s.session, uintptr(i), uintptr(unsafe.Pointer(&description))); err != nil {
			return nil, err
		}
		err := s.r.try(castTypeInfoToTensorInfo, description, uintptr(unsafe.Pointer(&shape)))
		if err == nil && shape == 0 {
			err = fmt.Errorf("%q of the model is no tensor", list[i].Name)
		}
		if err == nil {
			list[i].Type, list[i].Shape, err = s.r.shape(shape)
		}
		s.r.call(releaseTypeInfo, description)
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// shape returns the type and shape in an OrtTensorTypeAndShapeInfo.
func (r *Runtime) shape(info uintptr) (tensor.Type, []int64, error) {
	var kind int32
	var n uintptr
	err := errors.Join(r.try(getTensorElementType, info, uintptr(unsafe.Pointer(&kind))), r.try(getDimensionsCount, info, uintptr(unsafe.Pointer(&n))))
	shape := make([]int64, n)
	if err == nil && n > 0 {
		err = r.try(getDimensions, info, uintptr(unsafe.Pointer(&shape[0])), n)
	}
	return tensor.Type(kind), shape, err
}
