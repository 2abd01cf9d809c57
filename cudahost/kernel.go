// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"fmt"
	"unsafe"
)

// A Module is code loaded onto the GPU.
type Module struct {
	device *Device
	handle uintptr
}

// Load loads code compiled by Compiler.Compile. The caller must close the module.
func (g *Device) Load(code []byte) (*Module, error) {
	m := &Module{device: g}
	image := append(code[:len(code):len(code)], 0) // PTX is a C string
	err := g.withContext(func(d *driver) error {
		return d.call(cuModuleLoadData, uintptr(unsafe.Pointer(&m.handle)), uintptr(unsafe.Pointer(&image[0])))
	})
	if err != nil {
		return nil, fmt.Errorf("loading %d bytes of code: %w", len(code), err)
	}
	return m, nil
}

// Close unloads the code, which must not be running.
func (m *Module) Close() error {
	return m.device.withContext(func(d *driver) error { return d.call(cuModuleUnload, m.handle) })
}

// A Kernel is a function of a module.
type Kernel struct {
	device *Device
	handle uintptr
	name   string
}

// Kernel returns an extern "C" function of the module.
func (m *Module) Kernel(name string) (*Kernel, error) {
	k := &Kernel{device: m.device, name: name}
	text := append([]byte(name), 0)
	err := m.device.withContext(func(d *driver) error {
		return d.call(cuModuleGetFunction, uintptr(unsafe.Pointer(&k.handle)), m.handle, uintptr(unsafe.Pointer(&text[0])))
	})
	if err != nil {
		return nil, fmt.Errorf("kernel %s: %w", name, err)
	}
	return k, nil
}

// Dim is the size of a grid in blocks or of a block in threads. 0 in Y or Z counts as 1.
type Dim struct{ X, Y, Z int }

// Launch enqueues a run of the kernel on the stream. args are pointers to the parameters, as for cuLaunchKernel; the
// parameters have been copied when Launch returns.
func (k *Kernel) Launch(s *Stream, grid, block Dim, args ...unsafe.Pointer) error {
	err := k.device.withContext(func(d *driver) error {
		const params = 9
		return d.pointed(cuLaunchKernel, uintptr(unsafe.Pointer(unsafe.SliceData(args))), params, []uintptr{
			k.handle, uintptr(grid.X), uintptr(max(1, grid.Y)), uintptr(max(1, grid.Z)),
			uintptr(block.X), uintptr(max(1, block.Y)), uintptr(max(1, block.Z)), 0, s.handle, params: 0, 10: 0,
		})
	})
	if err != nil {
		return fmt.Errorf("kernel %s: %w", k.name, err)
	}
	return nil
}
