// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/tegracast/tegracast/cudahost"
)

// A bareDriver provides the functions of libcuda that only measurements need. It must be used on the thread on which it
// was created, which has the device's context.
type bareDriver struct {
	t         testing.TB
	functions map[string]uintptr
}

var bareNames = []string{
	"cuStreamGetCtx", "cuCtxSetCurrent", "cuDeviceGetAttribute", "cuEventCreate", "cuEventRecord", "cuEventSynchronize",
	"cuEventElapsedTime", "cuEventDestroy_v2", "cuStreamWaitEvent", "cuMemcpyDtoDAsync_v2", "cuMemcpyHtoDAsync_v2",
	"cuMemcpyDtoHAsync_v2",
}

// newBareDriver uses the context of the stream's device.
func newBareDriver(t testing.TB, s *cudahost.Stream) *bareDriver {
	t.Helper()
	library, err := purego.Dlopen("libcuda.so.1", purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		t.Fatal(err)
	}
	d := &bareDriver{t: t, functions: map[string]uintptr{}}
	for _, name := range bareNames {
		if d.functions[name], err = purego.Dlsym(library, name); err != nil {
			t.Fatal(err)
		}
	}
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	var context uintptr
	d.call("cuStreamGetCtx", s.Handle(), uintptr(unsafe.Pointer(&context)))
	d.call("cuCtxSetCurrent", context)
	return d
}

//go:uintptrescapes
func (d *bareDriver) call(name string, args ...uintptr) {
	if r, _, _ := purego.SyscallN(d.functions[name], args...); int32(r) != 0 {
		d.t.Helper()
		d.t.Fatalf("%s: CUresult %d", name, int32(r))
	}
}

// attribute returns an attribute of the device (CUdevice_attribute).
func (d *bareDriver) attribute(number int) int32 {
	var v int32
	d.call("cuDeviceGetAttribute", uintptr(unsafe.Pointer(&v)), uintptr(number), 0)
	return v
}

// A mark is a position in a stream whose time is recorded.
type mark struct {
	driver *bareDriver
	event  uintptr
}

func (d *bareDriver) newMark() *mark {
	m := &mark{driver: d}
	d.call("cuEventCreate", uintptr(unsafe.Pointer(&m.event)), 0)
	d.t.Cleanup(func() { d.call("cuEventDestroy_v2", m.event) })
	return m
}

func (m *mark) on(s *cudahost.Stream) { m.driver.call("cuEventRecord", m.event, s.Handle()) }

// await makes the stream wait until the position is reached.
func (m *mark) await(s *cudahost.Stream) {
	m.driver.call("cuStreamWaitEvent", s.Handle(), m.event, 0)
}

// since waits for the position, and returns the device's time since the other position.
func (m *mark) since(begin *mark) time.Duration {
	var milliseconds float32
	m.driver.call("cuEventSynchronize", m.event)
	m.driver.call("cuEventElapsedTime", uintptr(unsafe.Pointer(&milliseconds)), begin.event, m.event)
	return time.Duration(float64(milliseconds) * 1e6)
}
