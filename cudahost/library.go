// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// ErrNoCUDA is wrapped by all errors that say why CUDA is not available on this machine.
var ErrNoCUDA = errors.New("no CUDA")

// libcuda is the driver's library, by its soname rather than by the file name that a development package installs.
const libcuda = "libcuda.so.1"

// driver holds the functions of libcuda that are used, under their newest names (CUDA Driver API).
type driver struct {
	handle  uintptr
	symbols [symbolCount]uintptr

	mu   sync.Mutex
	free []*arguments // unused ones: purego makes them escape, so they are reused

	back callbacks
}

// arguments are the arguments of a call. No function of the driver that is used has more than 11.
type arguments [11]uintptr

// symbol is a function of libcuda.
type symbol int

const (
	cuInit symbol = iota
	cuDriverGetVersion
	cuDeviceGetCount
	cuDeviceGet
	cuDeviceGetName
	cuDeviceGetAttribute
	cuDevicePrimaryCtxRetain
	cuDevicePrimaryCtxRelease
	cuCtxSetCurrent
	cuCtxSynchronize
	cuGetErrorName
	cuGetErrorString
	cuMemGetInfo
	cuMemHostAlloc
	cuMemFreeHost
	cuMemHostGetDevicePointer
	cuMemHostRegister
	cuMemHostUnregister
	cuMemAlloc
	cuMemFree
	cuMemcpyHtoD
	cuMemcpy2DAsync
	cuMemcpyDtoHAsync
	cuMemsetD8Async
	cuPointerGetAttributes
	cuPointerSetAttribute
	cuStreamCreate
	cuStreamDestroy
	cuStreamSynchronize
	cuStreamWaitEvent
	cuEventCreate
	cuEventDestroy
	cuEventRecord
	cuEventSynchronize
	cuModuleLoadData
	cuModuleUnload
	cuModuleGetFunction
	cuLaunchKernel
	cuLaunchHostFunc
	symbolCount
)

var symbolNames = [symbolCount]string{
	cuInit:                    "cuInit",
	cuDriverGetVersion:        "cuDriverGetVersion",
	cuDeviceGetCount:          "cuDeviceGetCount",
	cuDeviceGet:               "cuDeviceGet",
	cuDeviceGetName:           "cuDeviceGetName",
	cuDeviceGetAttribute:      "cuDeviceGetAttribute",
	cuDevicePrimaryCtxRetain:  "cuDevicePrimaryCtxRetain",
	cuDevicePrimaryCtxRelease: "cuDevicePrimaryCtxRelease_v2",
	cuCtxSetCurrent:           "cuCtxSetCurrent",
	cuCtxSynchronize:          "cuCtxSynchronize",
	cuGetErrorName:            "cuGetErrorName",
	cuGetErrorString:          "cuGetErrorString",
	cuMemGetInfo:              "cuMemGetInfo_v2",
	cuMemHostAlloc:            "cuMemHostAlloc",
	cuMemFreeHost:             "cuMemFreeHost",
	cuMemHostGetDevicePointer: "cuMemHostGetDevicePointer_v2",
	cuMemHostRegister:         "cuMemHostRegister_v2",
	cuMemHostUnregister:       "cuMemHostUnregister",
	cuMemAlloc:                "cuMemAlloc_v2",
	cuMemFree:                 "cuMemFree_v2",
	cuMemcpyHtoD:              "cuMemcpyHtoD_v2",
	cuMemcpy2DAsync:           "cuMemcpy2DAsync_v2",
	cuMemcpyDtoHAsync:         "cuMemcpyDtoHAsync_v2",
	cuMemsetD8Async:           "cuMemsetD8Async",
	cuPointerGetAttributes:    "cuPointerGetAttributes",
	cuPointerSetAttribute:     "cuPointerSetAttribute",
	cuStreamCreate:            "cuStreamCreate",
	cuStreamDestroy:           "cuStreamDestroy_v2",
	cuStreamSynchronize:       "cuStreamSynchronize",
	cuStreamWaitEvent:         "cuStreamWaitEvent",
	cuEventCreate:             "cuEventCreate",
	cuEventDestroy:            "cuEventDestroy_v2",
	cuEventRecord:             "cuEventRecord",
	cuEventSynchronize:        "cuEventSynchronize",
	cuModuleLoadData:          "cuModuleLoadData",
	cuModuleUnload:            "cuModuleUnload",
	cuModuleGetFunction:       "cuModuleGetFunction",
	cuLaunchKernel:            "cuLaunchKernel",
	cuLaunchHostFunc:          "cuLaunchHostFunc",
}

// openDriver loads the library with that name or path and looks up all functions.
func openDriver(name string) (*driver, error) {
	handle, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("%w: NVIDIA's driver is not installed: %w", ErrNoCUDA, err)
	}
	d := &driver{handle: handle}
	for i, name := range symbolNames {
		if d.symbols[i], err = purego.Dlsym(handle, name); err != nil {
			return nil, errors.Join(fmt.Errorf("%w: the driver is too old or broken: %w", ErrNoCUDA, err), purego.Dlclose(handle))
		}
	}
	return d, nil
}

// call calls a function and returns an *Error for a result other than CUDA_SUCCESS. Pointers may be converted to
// uintptr in the argument list.
//
//go:uintptrescapes
func (d *driver) call(f symbol, args ...uintptr) error {
	r, _, _ := purego.SyscallN(d.symbols[f], args...)
	if code := int32(r); code != 0 {
		return d.failure(f, code)
	}
	return nil
}

// quick does the same as call, for arguments that are not pointers to Go memory. It reuses memory for the arguments
// instead of allocating it for each call.
func (d *driver) quick(f symbol, args ...uintptr) error {
	w := d.arguments()
	r, _, _ := purego.SyscallN(d.symbols[f], w[:copy(w[:], args)]...)
	d.mu.Lock()
	d.free = append(d.free, w)
	d.mu.Unlock()
	if code := int32(r); code != 0 {
		return d.failure(f, code)
	}
	return nil
}

func (d *driver) arguments() *arguments {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.free)
	if n == 0 {
		return new(arguments)
	}
	w := d.free[n-1]
	d.free = d.free[:n-1]
	return w
}

// pointed is quick with one pointer to Go memory, which replaces args[at]. The memory does not move, because the
// pointer escapes.
//
//go:uintptrescapes
//go:noinline
func (d *driver) pointed(f symbol, pointer uintptr, at int, args []uintptr) error {
	args[at] = pointer
	return d.quick(f, args...)
}

// An Error is a CUresult other than CUDA_SUCCESS.
type Error struct {
	Call    string // name of the function
	Code    int    // CUresult
	Name    string // such as CUDA_ERROR_OUT_OF_MEMORY
	Meaning string // as described by the driver
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s (%d): %s", e.Call, e.Name, e.Code, e.Meaning)
}

// Sticky reports whether the process cannot continue with CUDA: after a fault in a kernel every further call fails, and
// not even a new context recovers. The process must end, and its service manager must restart it.
func (e *Error) Sticky() bool {
	return slices.Contains(sticky, e.Code)
}

// sticky lists ECC_UNCORRECTABLE, NVLINK_UNCORRECTABLE, ILLEGAL_ADDRESS, LAUNCH_TIMEOUT, ASSERT, HARDWARE_STACK_ERROR,
// ILLEGAL_INSTRUCTION, MISALIGNED_ADDRESS, INVALID_ADDRESS_SPACE, INVALID_PC and LAUNCH_FAILED. For all but the first
// two, cuda.h says: "the process must be terminated and relaunched".
var sticky = []int{214, 220, 700, 702, 710, 714, 715, 716, 717, 718, 719}

func (d *driver) failure(f symbol, code int32) error {
	e := &Error{Call: symbolNames[f], Code: int(code), Name: "CUresult", Meaning: "unknown to this driver"}
	for to, s := range map[*string]symbol{&e.Name: cuGetErrorName, &e.Meaning: cuGetErrorString} {
		var text *byte
		if r, _, _ := purego.SyscallN(d.symbols[s], uintptr(code), uintptr(unsafe.Pointer(&text))); int32(r) == 0 && text != nil {
			*to = goString(text)
		}
	}
	return e
}

// goString copies a C string.
func goString(p *byte) string {
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}
