// SPDX-License-Identifier: Apache-2.0

package tegra

import "github.com/tegracast/tegracast/tegra/uapi"

// Fake is a simulated module.
type Fake struct{ m *fakeModule }

// NewFake opens a device on a simulated module.
func NewFake() (*Device, Fake, error) {
	m, err := newFakeModule()
	if err != nil {
		return nil, Fake{}, err
	}
	d, err := newDevice("fake", m)
	return d, Fake{m}, err
}

// Invalidate tells the module that memory is about to change.
func (f Fake) Invalidate(addr uintptr, size int) { f.m.invalidate(addr, size) }

// Unplug removes the function.
func (f Fake) Unplug() { f.m.unplug() }

// FakeCalls are the calls of a simulated module.
type FakeCalls struct{ m *fakeModule }

// NewFakeCalls opens a simulated module, for reading only or for both.
func NewFakeCalls(readOnly bool) (FakeCalls, error) {
	m, err := newFakeModule()
	if err == nil {
		m.reader = readOnly
	}
	return FakeCalls{m}, err
}

func (f FakeCalls) Info() (uapi.Info, error)                       { return f.m.info() }
func (f FakeCalls) Pin(p *uapi.Pin, segments []uapi.Segment) error { return f.m.pin(p, segments) }

func (f FakeCalls) Query(q *uapi.Query, segments []uapi.Segment) error { return f.m.query(q, segments) }
func (f FakeCalls) Put(handle uint32) error                            { return f.m.put(handle) }
func (f FakeCalls) Alloc(a *uapi.Alloc) error                          { return f.m.alloc(a) }
func (f FakeCalls) SetEvent(kind, index uint32, eventfd int) error {
	return f.m.setEvent(kind, index, eventfd)
}
func (f FakeCalls) SetHalt(ops []uapi.HaltOp) error { return f.m.setHalt(ops) }
func (f FakeCalls) Control(op uint32, generation uint64) (uint64, error) {
	return f.m.control(op, generation)
}
func (f FakeCalls) Mmap(offset uint64, size int) ([]byte, error) { return f.m.mmap(offset, size) }
func (f FakeCalls) Close() error                                 { return f.m.close() }
