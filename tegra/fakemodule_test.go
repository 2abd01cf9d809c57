// SPDX-License-Identifier: Apache-2.0

package tegra

import (
	"encoding/binary"
	"math"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// fakeModule is a driver in the process: what the kernel module does with the table of pins, without a device. It gives
// out handles lowest first, as an IDR does, and scattered segments of one page.
type fakeModule struct {
	what   uapi.Info
	memory *os.File // BAR 0, then coherent memory

	mu     sync.Mutex
	pins   map[uint32]*fakePin
	events map[[2]uint32]int // kind and index → eventfd of its own
	halt   []uapi.HaltOp
	size   int64
	closed bool
	calls  map[string]int
	fail   map[string]unix.Errno // by call
	before map[string]func()     // runs before the call, without mu
}

type fakePin struct {
	uapi.Pin
	alloc  bool
	state  uint32
	reason uint32
}

const fakeBAR = 0x10000

func newFakeModule() (*fakeModule, error) {
	fd, err := unix.MemfdCreate("fake", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	m := &fakeModule{
		what:   uapi.Info{APIVersion: uapi.APIVersion, PinAlign: PageSize, NIRQs: 3, Flags: uapi.InfoIOMMU | uapi.InfoStrict, Vendor: 0x10ee},
		memory: os.NewFile(uintptr(fd), "fake"), pins: map[uint32]*fakePin{}, events: map[[2]uint32]int{}, calls: map[string]int{},
		fail: map[string]unix.Errno{}, before: map[string]func(){},
	}
	return m, m.grow(fakeBAR)
}

func (m *fakeModule) grow(n int64) error {
	m.size += n
	return m.memory.Truncate(m.size)
}

// enter counts a call and refuses it when the function, or the file, is no more.
func (m *fakeModule) enter(call string) error {
	m.calls[call]++
	if m.closed {
		return os.ErrClosed
	}
	if m.what.State == uapi.StateGone {
		return &uapi.Error{Errno: unix.ENODEV}
	}
	if errno := m.fail[call]; errno != 0 {
		return &uapi.Error{Errno: errno}
	}
	return nil
}

func (m *fakeModule) info() (uapi.Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.what, m.enter("info")
}

func (m *fakeModule) region(index int) (uapi.Region, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if index != 0 {
		return uapi.Region{}, m.enter("region")
	}
	return uapi.Region{Flags: uapi.RegionMmap, Size: fakeBAR}, m.enter("region")
}

func (m *fakeModule) handle() uint32 {
	for h := uint32(0); ; h++ {
		if m.pins[h] == nil {
			return h
		}
	}
}

func (m *fakeModule) pin(p *uapi.Pin, segments []uapi.Segment) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter("pin"); err != nil {
		return err
	}
	if m.what.State == uapi.StateFenced {
		return &uapi.Error{Call: uapi.CallPin, Errno: unix.ESTALE}
	}
	for _, o := range m.pins {
		if !o.alloc && o.state == uapi.PinLive && p.VA < o.VA+o.Size && o.VA < p.VA+p.Size {
			return &uapi.Error{Call: uapi.CallPin, Errno: unix.EBUSY}
		}
	}
	if p.Flags&uapi.PinExpectWC != 0 {
		return &uapi.Error{Call: uapi.CallPin, Errno: unix.EMEDIUMTYPE}
	}
	if err := probeMemory(p); err != nil {
		return err
	}
	if len(m.pins) == MaxPins {
		return &uapi.Error{Call: uapi.CallPin, Errno: unix.ENOSPC}
	}
	p.Handle = m.handle()
	m.pins[p.Handle] = &fakePin{Pin: *p}
	p.NSegs = uint32(fakeSegments(p.Handle, p.Size, 0, segments))
	return nil
}

// probeMemory finds a mapping's end by mincore, and its protection by reading into it.
func probeMemory(p *uapi.Pin) error {
	bad := &uapi.Error{Call: uapi.CallPin, Errno: unix.EFAULT}
	resident := make([]byte, p.Size/PageSize)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(p.VA), uintptr(p.Size), uintptr(unsafe.Pointer(&resident[0])))
	if errno != 0 {
		return bad
	}
	zero, err := os.Open("/dev/zero")
	if err != nil {
		return err
	}
	defer zero.Close()
	for at := p.VA; at < p.VA+p.Size; at += PageSize {
		n, _, errno := unix.Syscall(unix.SYS_READ, zero.Fd(), uintptr(at), 1)
		if errno != 0 || n != 1 {
			return bad
		}
	}
	return nil
}

// fakeSegments are a page each, every other one, from first on.
func fakeSegments(handle uint32, size uint64, first int, segments []uapi.Segment) int {
	n := int(size / PageSize)
	for i := range segments[:min(len(segments), n-first)] {
		segments[i] = uapi.Segment{IOVA: uint64(handle+1)<<32 + uint64(first+i)*2*PageSize, Len: PageSize}
	}
	return n
}

func (m *fakeModule) query(q *uapi.Query, segments []uapi.Segment) error {
	if f := m.before["query"]; f != nil {
		delete(m.before, "query")
		f()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter("query"); err != nil {
		return err
	}
	p := m.pins[q.Handle]
	if p == nil {
		return &uapi.Error{Call: uapi.CallQuery, Errno: unix.ENOENT}
	}
	q.Cookie, q.State, q.Reason = p.Cookie, p.state, p.reason
	if p.state == uapi.PinLive {
		q.NSegs = uint32(fakeSegments(q.Handle, p.Size, int(q.SegFirst), segments))
	}
	return nil
}

func (m *fakeModule) put(handle uint32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter("put"); err != nil {
		return err
	}
	if m.pins[handle] == nil {
		return &uapi.Error{Call: uapi.CallPut, Errno: unix.ENOENT}
	}
	delete(m.pins, handle)
	return nil
}

func (m *fakeModule) alloc(a *uapi.Alloc) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter("alloc"); err != nil {
		return err
	}
	if m.what.State == uapi.StateFenced {
		return &uapi.Error{Call: uapi.CallAlloc, Errno: unix.ESTALE}
	}
	if len(m.pins) == MaxPins {
		return &uapi.Error{Call: uapi.CallAlloc, Errno: unix.ENOSPC}
	}
	a.Handle, a.MmapOffset = m.handle(), uint64(m.size)
	a.IOVA = uint64(m.size) << 20
	m.pins[a.Handle] = &fakePin{alloc: true}
	return m.grow(int64(a.Size))
}

func (m *fakeModule) setEvent(kind, index uint32, eventfd int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter("setEvent"); err != nil {
		return err
	}
	own, err := unix.FcntlInt(uintptr(eventfd), unix.F_DUPFD_CLOEXEC, 0)
	m.events[[2]uint32{kind, index}] = own
	return err
}

// signal does what the kernel's eventfd_signal does.
func (m *fakeModule) signal(kind, index uint32) {
	_, _ = unix.Write(m.events[[2]uint32{kind, index}], binary.NativeEndian.AppendUint64(nil, 1))
}

func (m *fakeModule) setHalt(ops []uapi.HaltOp) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.halt = ops
	return m.enter("setHalt")
}

func (m *fakeModule) control(op uint32, generation uint64) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter("control"); err != nil {
		return 0, err
	}
	switch op {
	case uapi.ControlResume:
		if generation != m.what.FenceGen {
			return m.what.FenceGen, &uapi.Error{Call: uapi.CallControl, Errno: unix.EAGAIN}
		}
		m.what.State = uapi.StateLive
	case uapi.ControlFence:
		m.fence()
	case uapi.ControlUnmask:
		m.calls["unmask"]++
	default:
		return 0, &uapi.Error{Call: uapi.CallControl, Errno: unix.EOPNOTSUPP}
	}
	return m.what.FenceGen, nil
}

func (m *fakeModule) fence() {
	m.what.State = uapi.StateFenced
	m.what.FenceGen++
}

func (m *fakeModule) mmap(offset uint64, size int) ([]byte, error) {
	if errno := m.fail["mmap"]; errno != 0 { // as the system call has it
		return nil, errno
	}
	return unix.Mmap(int(m.memory.Fd()), int64(offset), size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func (m *fakeModule) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return os.ErrClosed
	}
	m.closed = true
	for _, fd := range m.events {
		_ = unix.Close(fd)
	}
	return m.memory.Close()
}

// invalidate is the mmu notifier.
func (m *fakeModule) invalidate(addr uintptr, size int) {
	m.revoke(uapi.ReasonInvalidate, func(p *fakePin) bool {
		return p.VA < uint64(addr)+uint64(size) && uint64(addr) < p.VA+p.Size
	})
}

func (m *fakeModule) revoke(reason uint32, match func(*fakePin) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pins {
		if !p.alloc && p.state == uapi.PinLive && match(p) {
			p.state, p.reason = uapi.PinRevoked, reason
			m.fence()
			m.signal(uapi.EventRevoke, 0)
		}
	}
}

// unplug takes the function away, as hot-unplug does.
func (m *fakeModule) unplug() {
	m.revoke(uapi.ReasonUnplug, func(*fakePin) bool { return true })
	m.mu.Lock()
	defer m.mu.Unlock()
	m.what.State, m.what.FenceGen = uapi.StateGone, math.MaxUint64
	m.signal(uapi.EventError, 0)
}

// lose has the function lose its state, as a suspend does.
func (m *fakeModule) lose(why uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fence()
	m.what.Error = why
	m.what.Errors++
	m.signal(uapi.EventError, 0)
}
