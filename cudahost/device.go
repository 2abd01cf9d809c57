// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"unsafe"
)

// Device attributes (CUdevice_attribute).
const (
	attrMultiprocessors    = 16
	attrIntegrated         = 18
	attrCanMapHostMemory   = 19
	attrUnifiedAddressing  = 41
	attrCapabilityMajor    = 75
	attrCapabilityMinor    = 76
	attrHostPointerForRegi = 91
	attrReadOnlyRegister   = 113
	attrGPUDirectRDMA      = 116
)

// A Device is a GPU with its primary context. Its methods may be called from any goroutine.
type Device struct {
	driver  *driver
	number  int32
	context uintptr

	Name          string
	DriverVersion int             // 13000 is CUDA 13.0
	Capability    int             // 90 is compute capability 9.0
	Processors    int             // streaming multiprocessors
	Integrated    bool            // shares its memory with the CPU
	GPUDirectRDMA bool            // supported by the driver; false for drivers that do not know the attribute
	Logger        *slog.Logger    // for messages of compilers; nil: slog.Default()
	Interrupt     <-chan struct{} // after it is closed, Compiler.Compile fails with ErrInterrupted; nil: never
	unified       bool            // host pointers are device pointers

	closing sync.Once
	closed  error
}

// openDevice opens the first GPU. Errors wrap ErrNoCUDA and say what is missing.
func openDevice(library string) (*Device, error) {
	d, err := openDriver(library)
	if err != nil {
		return nil, err
	}
	g := &Device{driver: d}
	if err := g.open(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoCUDA, err)
	}
	return g, nil
}

func (g *Device) open() error {
	d := g.driver
	if err := d.call(cuInit, 0); err != nil {
		return err
	}
	var version, count int32
	if err := d.call(cuDriverGetVersion, uintptr(unsafe.Pointer(&version))); err != nil {
		return err
	}
	const oldest = 11040 // that of Xavier
	if g.DriverVersion = int(version); g.DriverVersion < oldest {
		return fmt.Errorf("the driver knows CUDA %d.%d, 11.4 is needed: update it", version/1000, version%1000/10)
	}
	if err := d.call(cuDeviceGetCount, uintptr(unsafe.Pointer(&count))); err != nil {
		return err
	}
	if count == 0 {
		return fmt.Errorf("the driver finds no GPU: see nvidia-smi and CUDA_VISIBLE_DEVICES")
	}
	if err := d.call(cuDeviceGet, uintptr(unsafe.Pointer(&g.number)), 0); err != nil {
		return err
	}
	name := make([]byte, 128)
	if err := d.call(cuDeviceGetName, uintptr(unsafe.Pointer(&name[0])), uintptr(len(name)), uintptr(g.number)); err != nil {
		return err
	}
	g.Name = goString(&name[0])
	if err := g.attributes(); err != nil {
		return err
	}
	return d.call(cuDevicePrimaryCtxRetain, uintptr(unsafe.Pointer(&g.context)), uintptr(g.number))
}

func (g *Device) attributes() error {
	var values [8]int32
	for i, a := range []int{
		attrIntegrated, attrCanMapHostMemory, attrUnifiedAddressing, attrCapabilityMajor, attrCapabilityMinor,
		attrHostPointerForRegi, attrGPUDirectRDMA, attrMultiprocessors,
	} {
		err := g.driver.call(cuDeviceGetAttribute, uintptr(unsafe.Pointer(&values[i])), uintptr(a), uintptr(g.number))
		if err != nil && a != attrGPUDirectRDMA { // unknown to older drivers
			return err
		}
	}
	if values[1] == 0 {
		return fmt.Errorf("%s cannot map host memory", g.Name)
	}
	g.Integrated, g.unified = values[0] != 0, values[2] != 0 || values[5] != 0
	g.Capability, g.GPUDirectRDMA = int(10*values[3]+values[4]), values[6] != 0
	g.Processors = int(values[7])
	return nil
}

// String describes the device in one line.
func (g *Device) String() string {
	return fmt.Sprintf("%s, compute capability %d.%d, CUDA %d.%d", g.Name, g.Capability/10, g.Capability%10,
		g.DriverVersion/1000, g.DriverVersion%1000/10)
}

// Do calls f on a thread on which the context is current, for CUDA libraries.
func (g *Device) Do(f func() error) error {
	return g.withContext(func(*driver) error { return f() })
}

// withContext calls f on a thread on which the context is current: CUDA's current context is a property of the thread.
func (g *Device) withContext(f func(d *driver) error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := g.driver.quick(cuCtxSetCurrent, g.context); err != nil {
		return err
	}
	return f(g.driver)
}

// Synchronize waits until the device has finished all its work.
func (g *Device) Synchronize() error {
	return g.withContext(func(d *driver) error { return d.call(cuCtxSynchronize) })
}

// FreeMemory returns the free and the total device memory in bytes.
func (g *Device) FreeMemory() (free, total int, err error) {
	err = g.withContext(func(d *driver) error {
		return d.call(cuMemGetInfo, uintptr(unsafe.Pointer(&free)), uintptr(unsafe.Pointer(&total)))
	})
	return free, total, err
}

// Close releases the context. Everything allocated must have been freed before. Further calls only return the same
// error.
func (g *Device) Close() error {
	g.closing.Do(func() { g.closed = g.driver.call(cuDevicePrimaryCtxRelease, uintptr(g.number)) })
	return g.closed
}
