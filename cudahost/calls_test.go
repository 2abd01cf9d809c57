// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"testing"
	"unsafe"
)

// framesCalls returns the calls that a stage makes for a frame, on the stand-in.
func framesCalls(t testing.TB) map[string]func() error {
	t.Helper()
	c := openStandin(t)
	m, err := c.Device.Load([]byte("code"))
	if err != nil {
		t.Fatal(err)
	}
	k, err := m.Kernel("there")
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Device.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	e, err := c.Device.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.AllocHost(3*pageSize, Mapped)
	if err != nil {
		t.Fatal(err)
	}
	first, second := uintptr(1), int32(77)
	params := []unsafe.Pointer{unsafe.Pointer(&first), unsafe.Pointer(&second)}
	at, l := b.Addr(), Lines{Width: 64, Height: 2, Stride: 64}
	t.Cleanup(func() {
		for _, err := range []error{s.Close(), e.Close(), m.Close(), b.Close()} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	return map[string]func() error{
		"launch":  func() error { return k.Launch(s, Dim{X: 4, Y: 3}, Dim{X: 32}, params...) },
		"copy in": func() error { return s.CopyIn(at+pageSize, at, l) },
		"read":    func() error { return s.Read(at+pageSize, at, 64) },
		"clear":   func() error { return s.Clear(at, 64) },
		"mark":    func() error { return s.Mark(e) },
		"after":   func() error { return s.After(e) },
	}
}

// BenchmarkCalls measures the cost of driver calls in this process.
func BenchmarkCalls(b *testing.B) {
	for name, f := range framesCalls(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestFramesCallsAllocateNothing matters because a frame takes up to twenty calls.
func TestFramesCallsAllocateNothing(t *testing.T) {
	for name, f := range framesCalls(t) {
		if n := testing.AllocsPerRun(200, func() {
			if err := f(); err != nil {
				t.Error(err)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
