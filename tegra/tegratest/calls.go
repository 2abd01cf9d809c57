// SPDX-License-Identifier: Apache-2.0

package tegratest

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra"
	"github.com/tegracast/tegracast/tegra/uapi"
)

// Calls are the calls on an open device file (package uapi), as made by tegra.Device.
type Calls interface {
	Info() (uapi.Info, error)
	Pin(p *uapi.Pin, segments []uapi.Segment) error
	Query(q *uapi.Query, segments []uapi.Segment) error
	Put(handle uint32) error
	Alloc(a *uapi.Alloc) error
	SetEvent(kind, index uint32, eventfd int) error
	SetHalt(ops []uapi.HaltOp) error
	Control(op uint32, generation uint64) (uint64, error)
	Mmap(offset uint64, size int) ([]byte, error)
	Close() error
}

// RunCalls checks that forbidden calls on the open file are rejected. open opens the device file of a fenced function,
// for reading only or for reading and writing; RunCalls closes it. Some checks open the file a second time while it is
// still open.
func RunCalls(t *testing.T, open func(t *testing.T, readOnly bool) Calls) {
	for _, f := range list() {
		if f.calls == nil {
			continue
		}
		t.Run(f.call+" of "+f.what, func(t *testing.T) {
			b := &callBench{t: t, open: open, c: open(t, false)}
			defer func() {
				if err := b.c.Close(); err != nil {
					t.Error(err)
				}
			}()
			b.resume()
			if err := f.calls(t, b); !errors.Is(err, f.errno) {
				t.Errorf("%v, want %v", err, f.errno)
			}
		})
	}
}

// callBench is an open file and helpers for a test.
type callBench struct {
	t    *testing.T
	open func(t *testing.T, readOnly bool) Calls
	c    Calls
}

func (b *callBench) memory(pages int) memory { return newMemory(b.t, pages) }

// asks returns a request to pin the memory.
func (m memory) asks(flags uint32) uapi.Pin {
	return uapi.Pin{Flags: flags, VA: uint64(m.page(0)), Size: uint64(len(m))}
}

// pin returns the error of a PIN. It releases what should not have been pinned.
func (b *callBench) pin(p uapi.Pin) error {
	err := b.c.Pin(&p, nil)
	if err == nil {
		b.put(p.Handle)
	}
	return err
}

func (b *callBench) pinned(m memory) (handle uint32) {
	b.t.Helper()
	p := m.asks(uapi.PinToDevice)
	if err := b.c.Pin(&p, nil); err != nil {
		b.t.Fatal(err)
	}
	return p.Handle
}

func (b *callBench) allocated(size int) uapi.Alloc {
	b.t.Helper()
	a := uapi.Alloc{Size: uint64(size)}
	if err := b.c.Alloc(&a); err != nil {
		b.t.Fatal(err)
	}
	return a
}

func (b *callBench) put(handle uint32) {
	b.t.Helper()
	if err := b.c.Put(handle); err != nil {
		b.t.Error(err)
	}
}

func (b *callBench) info() uapi.Info {
	b.t.Helper()
	info, err := b.c.Info()
	if err != nil {
		b.t.Fatal(err)
	}
	return info
}

func (b *callBench) resume() {
	b.t.Helper()
	if _, err := b.c.Control(uapi.ControlResume, b.info().FenceGen); err != nil {
		b.t.Fatal(err)
	}
}

func (b *callBench) fence() {
	b.t.Helper()
	if _, err := b.c.Control(uapi.ControlFence, 0); err != nil {
		b.t.Fatal(err)
	}
}

// another opens the function again, for the rest of the test.
func (b *callBench) another(readOnly bool) Calls {
	b.t.Helper()
	c := b.open(b.t, readOnly)
	b.t.Cleanup(func() { _ = c.Close() })
	return c
}

// only returns an entry for something that only the calls can do, not the interface above them.
func only(call string, errno unix.Errno, what string, calls func(b *callBench) error) forbidden {
	return forbidden{call: call, errno: errno, what: what, calls: func(_ *testing.T, b *callBench) error { return calls(b) }}
}

// byReader returns an entry for a call through a descriptor that was opened for reading only.
func byReader(call, what string, do func(c Calls) error) forbidden {
	return only(call, unix.EACCES, what+" by a reader", func(b *callBench) error { return do(b.another(true)) })
}

func forbiddenCalls() []forbidden {
	const p = tegra.PageSize
	return append([]forbidden{
		only("QUERY", unix.ENOENT, "no pin", func(b *callBench) error { return b.c.Query(&uapi.Query{Handle: 77}, nil) }),
		only("QUERY", unix.ENOENT, "a pin of another file", func(b *callBench) error {
			return b.another(false).Query(&uapi.Query{Handle: b.pinned(b.memory(1))}, nil)
		}),
		only("QUERY", unix.EINVAL, "an allocation", func(b *callBench) error { return b.c.Query(&uapi.Query{Handle: b.allocated(p).Handle}, nil) }),
		only("PUT", unix.ENOENT, "no pin", func(b *callBench) error { return b.c.Put(0) }),
		only("PUT", unix.ENOENT, "a pin of another file", func(b *callBench) error { return b.another(false).Put(b.pinned(b.memory(1))) }),
		{
			"PUT", unix.ENOENT, "what was put",
			func(_ *testing.T, b *bench) error {
				pin := b.pin(b.memory(1), 0, 1, tegra.ToDevice)
				b.unpinned(pin)
				return pin.Unpin()
			}, tegra.ErrUnpinned,
			func(_ *testing.T, b *callBench) error {
				h := b.pinned(b.memory(1))
				b.put(h)
				return b.c.Put(h)
			},
		},
		only("PUT", unix.EBUSY, "an allocation that is mapped", func(b *callBench) error {
			a := b.allocated(p)
			m, err := b.c.Mmap(a.MmapOffset, p)
			if err != nil {
				b.t.Fatal(err)
			}
			err = b.c.Put(a.Handle)
			if unmap := unix.Munmap(m); unmap != nil {
				b.t.Error(unmap)
			}
			b.put(a.Handle)
			return err
		}),
		only("mmap", unix.EINVAL, "a part of an allocation", func(b *callBench) error {
			_, err := b.c.Mmap(b.allocated(2*p).MmapOffset, p)
			return err
		}),
		ofAlloc(unix.EINVAL, "nothing", 0),
		ofAlloc(unix.E2BIG, "more than 64 MiB", tegra.MaxCoherentSize+p),
		only("ALLOC", unix.EINVAL, "a part of a page", func(b *callBench) error { return b.c.Alloc(&uapi.Alloc{Size: 100}) }),
		{
			"ALLOC", unix.ESTALE, "memory behind a fence",
			func(_ *testing.T, b *bench) error { b.revokeOne(); return b.tryAlloc(p) }, tegra.ErrFenced,
			func(_ *testing.T, b *callBench) error { b.fence(); return b.c.Alloc(&uapi.Alloc{Size: p}) },
		},
		only("ALLOC", unix.ENOSPC, "more pins and allocations than 1024", func(b *callBench) error {
			for range tegra.MaxPins {
				b.allocated(p)
			}
			return b.c.Alloc(&uapi.Alloc{Size: p})
		}),
		{
			"CONTROL RESUME", unix.EAGAIN, "another generation",
			func(_ *testing.T, b *bench) error {
				generation, _ := b.f.Fenced()
				b.revokeOne()
				return b.f.Resume(generation)
			}, tegra.ErrGeneration,
			func(_ *testing.T, b *callBench) error {
				_, err := b.c.Control(uapi.ControlResume, b.info().FenceGen+1)
				return err
			},
		},
		only("CONTROL RESET", unix.EOPNOTSUPP, "a function without a reset", func(b *callBench) error {
			if b.info().Flags&uapi.InfoFLR != 0 {
				b.t.Skip("NEEDS a function without FLR")
			}
			_, err := b.c.Control(uapi.ControlReset, 0)
			return err
		}),
		only("CONTROL UNMASK", unix.EOPNOTSUPP, "messages", func(b *callBench) error {
			if b.info().Flags&uapi.InfoINTX != 0 {
				b.t.Skip("NEEDS a function with messages")
			}
			_, err := b.c.Control(uapi.ControlUnmask, 0)
			return err
		}),
		only("CONTROL", unix.EINVAL, "an operation that there is not", func(b *callBench) error { _, err := b.c.Control(9, 0); return err }),
		only("SET_EVENT", unix.EBADF, "no eventfd", func(b *callBench) error { return b.c.SetEvent(uapi.EventRevoke, 0, 999) }),
		only("SET_EVENT", unix.EINVAL, "a kind that there is not", func(b *callBench) error { return b.c.SetEvent(3, 0, -1) }),
		only("SET_EVENT", unix.EINVAL, "a vector that there is not", func(b *callBench) error {
			return b.c.SetEvent(uapi.EventMSI, b.info().NIRQs, -1)
		}),
		only("SET_HALT", unix.EINVAL, "17 accesses", func(b *callBench) error { return b.c.SetHalt(make([]uapi.HaltOp, uapi.HaltOps+1)) }),
	}, forbiddenToReaders()...)
}

func forbiddenToReaders() []forbidden {
	return []forbidden{
		byReader("PIN", "memory", func(c Calls) error { return c.Pin(&uapi.Pin{Flags: uapi.PinToDevice}, nil) }),
		byReader("PUT", "a pin", func(c Calls) error { return c.Put(1) }),
		byReader("ALLOC", "memory", func(c Calls) error { return c.Alloc(&uapi.Alloc{Size: tegra.PageSize}) }),
		byReader("SET_EVENT", "an eventfd", func(c Calls) error { return c.SetEvent(uapi.EventRevoke, 0, -1) }),
		byReader("SET_HALT", "a list", func(c Calls) error { return c.SetHalt(nil) }),
		byReader("CONTROL", "the fence", func(c Calls) error { _, err := c.Control(uapi.ControlFence, 0); return err }),
	}
}

// ofAlloc returns an entry for an ALLOC that is forbidden because of its size.
func ofAlloc(errno unix.Errno, what string, size int) forbidden {
	return forbidden{
		"ALLOC", errno, what,
		func(_ *testing.T, b *bench) error { return b.tryAlloc(size) }, tegra.ErrSize,
		func(_ *testing.T, b *callBench) error { return b.c.Alloc(&uapi.Alloc{Size: uint64(size)}) },
	}
}
