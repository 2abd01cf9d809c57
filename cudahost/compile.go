// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// ErrCompile is wrapped by the error of a Compile whose source does not compile; the message contains the compiler's
// log.
var ErrCompile = errors.New("CUDA source does not compile")

// ErrInterrupted and context.Canceled are wrapped by the error of a Compile that was interrupted by the device's
// Interrupt.
var ErrInterrupted = errors.New("compiling kernels was interrupted")

// nvrtcNames are the names by which the compiler's library is searched for: those of releases 13, 12 and 11.2 to 11.8
// of the toolkit (with NVRTC's own numbers).
var nvrtcNames = []string{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so.11"}

// toolkitFolders are the folders to search for the toolkit's libraries; "" leaves the search to the linker.
var toolkitFolders = []string{"", "/usr/local/cuda/lib64/", "/usr/local/cuda/targets/aarch64-linux/lib/", "/usr/local/cuda/targets/x86_64-linux/lib/"}

// A Compiler compiles CUDA C++ for the device's own compute capability with NVRTC.
type Compiler struct {
	device  *Device
	cache   string
	logger  *slog.Logger
	version int // 13000 is 13.0
	create, compile, destroy, sizeOf, code,
	logSize, log, errorString uintptr
}

// NewCompiler opens NVRTC. Compiled code is cached in the folder cache, by source, options, capability, driver and
// compiler; "" disables the cache. The error wraps ErrNoCUDA if NVRTC is missing or too old.
func (g *Device) NewCompiler(cache string) (*Compiler, error) {
	return g.newCompiler(cache, nvrtcNames)
}

func (g *Device) newCompiler(cache string, names []string) (*Compiler, error) {
	handle, err := openToolkit(names)
	if err != nil {
		return nil, fmt.Errorf("%w: the run-time compiler is not installed (libnvrtc of the CUDA toolkit or of JetPack): %w", ErrNoCUDA, err)
	}
	c := &Compiler{device: g, cache: cache, logger: cmp.Or(g.Logger, slog.Default())}
	var version uintptr
	for name, to := range map[string]*uintptr{
		"nvrtcCreateProgram": &c.create, "nvrtcCompileProgram": &c.compile, "nvrtcDestroyProgram": &c.destroy,
		"nvrtcGetCUBINSize": &c.sizeOf, "nvrtcGetCUBIN": &c.code, "nvrtcGetProgramLogSize": &c.logSize,
		"nvrtcGetProgramLog": &c.log, "nvrtcGetErrorString": &c.errorString, "nvrtcVersion": &version,
	} {
		if *to, err = purego.Dlsym(handle, name); err != nil {
			return nil, errors.Join(fmt.Errorf("%w: libnvrtc is too old: %w", ErrNoCUDA, err), purego.Dlclose(handle))
		}
	}
	var major, minor int32
	if err := c.check(call(version, uintptr(unsafe.Pointer(&major)), uintptr(unsafe.Pointer(&minor)))); err != nil {
		return nil, err
	}
	c.version = int(1000*major + 10*minor)
	return c, nil
}

// openToolkit opens a toolkit library: it tries the given names in order, in one of toolkitFolders after the other. If
// all fail, it returns the first error.
func openToolkit(names []string) (handle uintptr, err error) {
	for _, folder := range toolkitFolders {
		for _, name := range names {
			h, openErr := purego.Dlopen(folder+name, purego.RTLD_NOW|purego.RTLD_LOCAL)
			if openErr == nil {
				return h, nil
			}
			if err == nil {
				err = openErr
			}
		}
	}
	return 0, err
}

//go:uintptrescapes
func call(f uintptr, args ...uintptr) int32 {
	r, _, _ := purego.SyscallN(f, args...)
	return int32(r)
}

func (c *Compiler) check(code int32) error {
	if code == 0 {
		return nil
	}
	text := "unknown error"
	if r, _, _ := purego.SyscallN(c.errorString, uintptr(code)); r != 0 {
		text = goString(*(**byte)(unsafe.Pointer(&r)))
	}
	return fmt.Errorf("nvrtc: %s (%d)", text, code)
}

// Compile compiles source with further options of NVRTC; name is its name in errors. cached reports whether the code
// comes from the cache. Compiling takes seconds and is logged. Compile succeeds even if the code cannot be cached.
// Errors wrap ErrCompile or ErrInterrupted, or come from NVRTC.
func (c *Compiler) Compile(name, source string, options ...string) (code []byte, cached bool, err error) {
	options = append([]string{fmt.Sprintf("--gpu-architecture=sm_%d", c.device.Capability), "--std=c++14"}, options...)
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %d %d", source, options, c.device.DriverVersion, c.version)
	file := filepath.Join(c.cache, hex.EncodeToString(h.Sum(nil))+".cubin")
	if c.cache != "" {
		if code, err := os.ReadFile(file); err == nil && len(code) > 0 {
			return code, true, nil
		}
	}
	c.logger.Info("kernels are being compiled", "source", name, "capability", c.device.Capability)
	if code, err = c.buildUnlessInterrupted(name, source, options); err != nil || c.cache == "" {
		return code, false, err
	}
	if err := c.keep(file, code); err != nil {
		c.logger.Warn("compiled kernels cannot be cached: the next start compiles them again", "source", name, "error", err)
	}
	return code, false, nil
}

// keep writes the code to a file of the cache atomically.
func (c *Compiler) keep(file string, code []byte) error {
	if err := os.MkdirAll(c.cache, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(c.cache, ".compiled-")
	if err != nil {
		return err
	}
	_, err = f.Write(code)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// buildUnlessInterrupted calls build, but returns early if the device's Interrupt is closed. NVRTC cannot be stopped:
// it ends later, or with the process.
func (c *Compiler) buildUnlessInterrupted(name, source string, options []string) ([]byte, error) {
	var code []byte
	var err error
	built := make(chan struct{})
	go func() {
		defer close(built)
		code, err = c.build(name, source, options)
	}()
	select { // ends: the compiler
	case <-built:
		return code, err
	case <-c.device.Interrupt:
		return nil, fmt.Errorf("%w: %s: %w", ErrInterrupted, name, context.Canceled)
	}
}

func (c *Compiler) build(name, source string, options []string) (code []byte, err error) {
	text, file := append([]byte(source), 0), append([]byte(name), 0)
	list := make([]*byte, len(options))
	for i, o := range options {
		list[i] = &append([]byte(o), 0)[0]
	}
	var program uintptr
	if err := c.check(call(c.create, uintptr(unsafe.Pointer(&program)), uintptr(unsafe.Pointer(&text[0])),
		uintptr(unsafe.Pointer(&file[0])), 0, 0, 0)); err != nil {
		return nil, err
	}
	defer func() { call(c.destroy, uintptr(unsafe.Pointer(&program))) }()
	if err := c.check(call(c.compile, program, uintptr(len(list)), uintptr(unsafe.Pointer(&list[0])))); err != nil {
		return nil, fmt.Errorf("%w: %s: %w\n%s", ErrCompile, name, err, c.readLog(program))
	}
	var n uintptr
	if err := c.check(call(c.sizeOf, program, uintptr(unsafe.Pointer(&n)))); err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, fmt.Errorf("%w: %s: the compiler produced no code", ErrCompile, name)
	}
	code = make([]byte, n)
	return code, c.check(call(c.code, program, uintptr(unsafe.Pointer(&code[0]))))
}

func (c *Compiler) readLog(program uintptr) string {
	var n uintptr
	if call(c.logSize, program, uintptr(unsafe.Pointer(&n))) != 0 || n == 0 {
		return ""
	}
	b := make([]byte, n)
	if call(c.log, program, uintptr(unsafe.Pointer(&b[0]))) != 0 {
		return ""
	}
	return strings.TrimRight(string(b), "\x00\n")
}
