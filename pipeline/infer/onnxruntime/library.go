// SPDX-License-Identifier: Apache-2.0

// Package onnxruntime runs ONNX models by the C API of ONNX Runtime 1.17 and later, which it opens at run time. A fault of
// the library ends the process, and a model can keep it busy or make it fill the memory: it belongs in a process of its
// own, whose environment has no ORT_ variables, as these change what the library does. It reads the model and the files
// beside it again after package onnx has checked them, so nobody else may write there. No libraries with custom operators
// are loaded.
package onnxruntime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/tegracast/tegracast/pipeline/distribution"
	"github.com/tegracast/tegracast/pipeline/printable"
)

// Errors that callers distinguish. They are wrapped with the details.
var (
	ErrNoLibrary = errors.New("ONNX Runtime cannot be used here")
	ErrProvider  = errors.New("ONNX Runtime's provider cannot be used")
)

// A StatusError is an OrtStatus.
type StatusError struct {
	Call string // a function of the C API
	Code int    // OrtErrorCode
	Text string
}

func (e *StatusError) Error() string {
	name := "ONNX Runtime's error"
	if e.Code >= 0 && e.Code < len(codes) {
		name = codes[e.Code]
	}
	return fmt.Sprintf("ONNX Runtime: %s: %s (%d): %s", e.Call, name, e.Code, e.Text)
}

// A Runtime is an opened library with its environment. The library is never unloaded.
type Runtime struct {
	table          *[last17 + 1]uintptr
	release        string
	env, allocator uintptr // OrtEnv, OrtAllocator
}

// patterns match the library outside the folders of the dynamic linker. The file of Debian's package has the
// release in its name.
var patterns = []string{"/usr/local/lib/libonnxruntime.so*", "/usr/lib/*-linux-gnu/libonnxruntime.so*", "/usr/lib/libonnxruntime.so*"}

// Open opens the library in a file, or by a name that the dynamic linker knows. "" stands for the usual names and folders.
// The error wraps ErrNoLibrary.
func Open(library string) (*Runtime, error) {
	if library != "" {
		return open(library)
	}
	failed := fmt.Errorf("%w: %s", ErrNoLibrary, distribution.ONNXRuntime.Advice(os.DirFS("/")))
	for _, name := range append([]string{"libonnxruntime.so.1", "libonnxruntime.so"}, installed(patterns)...) {
		r, err := open(name)
		if err == nil {
			return r, nil
		}
		failed = fmt.Errorf("%w; %w", failed, err)
	}
	return nil, failed
}

// installed returns the files that match the patterns. A link counts once, under its shortest name.
func installed(patterns []string) (files []string) {
	seen := map[string]bool{}
	for _, p := range patterns {
		found, _ := filepath.Glob(p) // the patterns are well-formed
		for _, f := range found {
			if real, err := filepath.EvalSymlinks(f); err == nil && !seen[real] {
				seen[real] = true
				files = append(files, f)
			}
		}
	}
	return files
}

func open(library string) (*Runtime, error) {
	handle, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrNoLibrary, library, err)
	}
	getBase, err := purego.Dlsym(handle, "OrtGetApiBase")
	if err != nil {
		return nil, fmt.Errorf("%w: %s is not ONNX Runtime: %w", ErrNoLibrary, library, err)
	}
	at, _, _ := purego.SyscallN(getBase)
	base := *(**[2]uintptr)(unsafe.Pointer(&at)) // OrtApiBase: GetApi, GetVersionString
	version, _, _ := purego.SyscallN(base[1])
	api, _, _ := purego.SyscallN(base[0], apiVersion)
	r := &Runtime{release: text(version)}
	if api == 0 {
		return nil, fmt.Errorf("%w: %s is release %s, and 1.%d or later is needed", ErrNoLibrary, library, r.release, apiVersion)
	}
	r.table = *(**[last17 + 1]uintptr)(unsafe.Pointer(&api))
	name := cString("tegracast")
	if err := r.try(createEnv, logWarning, uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(&r.env))); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoLibrary, err)
	}
	err = errors.Join(r.try(disableTelemetryEvents, r.env), r.try(getAllocatorWithDefaultOptions, uintptr(unsafe.Pointer(&r.allocator))))
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("%w: %w", ErrNoLibrary, err)
	}
	return r, nil
}

// Close frees the environment. The sessions must have been closed.
func (r *Runtime) Close() {
	r.call(releaseEnv, r.env)
	r.env = 0
}

// Version returns the library's release, such as "1.17.3".
func (r *Runtime) Version() string { return r.release }

// Providers returns the names of the providers with which the library was built, such as "CUDAExecutionProvider". What
// they need besides may be missing.
func (r *Runtime) Providers() ([]string, error) {
	var list uintptr
	var n int32
	if err := r.try(getAvailableProviders, uintptr(unsafe.Pointer(&list)), uintptr(unsafe.Pointer(&n))); err != nil {
		return nil, err
	}
	var all []string
	for _, name := range words(list, int(n)) {
		all = append(all, text(name))
	}
	return all, r.try(releaseAvailableProviders, list, uintptr(n))
}

// call calls a function. Pointers may be converted to uintptr in the argument list.
//
//go:uintptrescapes
func (r *Runtime) call(f function, args ...uintptr) uintptr {
	result, _, _ := purego.SyscallN(r.table[f], args...)
	return result
}

// try calls a function that returns an OrtStatus, frees that, and returns its error.
//
//go:uintptrescapes
func (r *Runtime) try(f function, args ...uintptr) error {
	status, _, _ := purego.SyscallN(r.table[f], args...)
	if status == 0 {
		return nil
	}
	defer r.call(releaseStatus, status)
	return &StatusError{names[f], int(int32(r.call(getErrorCode, status))), text(r.call(getErrorMessage, status))}
}

// words returns n words of C memory at an address.
func words(at uintptr, n int) []uintptr {
	if n == 0 {
		return nil
	}
	return unsafe.Slice(*(**uintptr)(unsafe.Pointer(&at)), n)
}

func cString(s string) *byte { return &append([]byte(s), 0)[0] }

// longest is the length in bytes to which texts of the library are read.
const longest = 4096

// text copies a C string to one printable line.
func text(at uintptr) string { return printable.Text(raw(at)) }

// raw copies a C string.
func raw(at uintptr) string {
	if at == 0 {
		return ""
	}
	p, n := *(**byte)(unsafe.Pointer(&at)), 0
	for n < longest && *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(slices.Clone(unsafe.Slice(p, n)))
}
