// SPDX-License-Identifier: Apache-2.0

package tegra

import (
	"encoding/binary"
	"math"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// fakeModule is a driver without a device that does what the kernel module does with the table of pins. It rejects what
// the module rejects (tegra/tegratest). Unlike the module, which gives out handles in turn, it gives out the lowest
// free handle, so that one that was put is soon reused, and it returns scattered segments of one page.
type fakeModule struct {
	what   uapi.Info
	memory *os.File // BAR 0, then coherent memory

	mu     sync.Mutex
	pins   map[uint32]*fakePin
	events map[[2]uint32]int // kind and index → its own eventfd
	halt   []uapi.HaltOp
	size   int64
	closed bool
	reader bool // opened for reading only
	calls  map[string]int
	fail   map[string]unix.Errno // by call
	before map[string]func()     // called before "query", without mu, or "pin", with it
	late   bool                  // pins are revoked before PIN returns
}

type fakePin struct {
	uapi.Pin
	alloc  bool
	offset int64 // of an allocation, in memory
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
		what: uapi.Info{
			APIVersion: uapi.APIVersion, PinAlign: PageSize, NIRQs: 3, Flags: uapi.InfoIOMMU | uapi.InfoStrict, Vendor: 0x10ee,
			State: uapi.StateFenced, FenceGen: 1,
		},
		memory: os.NewFile(uintptr(fd), "fake"), pins: map[uint32]*fakePin{}, events: map[[2]uint32]int{}, calls: map[string]int{},
		fail: map[string]unix.Errno{}, before: map[string]func(){},
	}
	return m, m.grow(fakeBAR)
}

func (m *fakeModule) grow(n int64) error {
	m.size += n
	return m.memory.Truncate(m.size)
}

// enter counts a call and rejects it if the function, or the file, no longer exists.
func (m *fakeModule) enter(call string) error {
	m.calls[call]++
	if m.closed {
		return os.ErrClosed
	}
	if m.what.State == uapi.StateGone {
		return &uapi.Error{Errno: unix.ENODEV}
	}
	if m.reader && !slices.Contains([]string{"info", "region", "query"}, call) {
		return &uapi.Error{Errno: unix.EACCES}
	}
	if errno := m.fail[call]; errno != 0 {
		return &uapi.Error{Errno: errno}
	}
	return nil
}

// refused returns the error for an errno, or nil for 0.
func refused(call uint, errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return &uapi.Error{Call: call, Errno: errno}
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
	for h := uint32(1); ; h++ {
		if m.pins[h] == nil {
			return h
		}
	}
}

func (m *fakeModule) pin(p *uapi.Pin, segments []uapi.Segment) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.before["pin"]; f != nil {
		f()
	}
	if err := m.enter("pin"); err != nil {
		return err
	}
	if errno := m.checkPin(p); errno != 0 {
		return refused(uapi.CallPin, errno)
	}
	p.Handle = m.handle()
	m.pins[p.Handle] = &fakePin{Pin: *p}
	p.NSegs = uint32(fakeSegments(p.Handle, p.Size, 0, segments))
	if m.late {
		m.pins[p.Handle].state, p.NSegs = uapi.PinRevoked, 0
	}
	return nil
}

// fakeSegments returns segments of one page each, with gaps of one page, starting with number first.
func fakeSegments(handle uint32, size uint64, first int, segments []uapi.Segment) int {
	n := int(size / PageSize)
	for i := range segments[:min(len(segments), n-first)] {
		segments[i] = uapi.Segment{IOVA: uint64(handle)<<32 + uint64(first+i)*2*PageSize, Len: PageSize}
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
	if p.alloc {
		return &uapi.Error{Call: uapi.CallQuery, Errno: unix.EINVAL}
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
	switch p := m.pins[handle]; {
	case p == nil:
		return &uapi.Error{Call: uapi.CallPut, Errno: unix.ENOENT}
	case p.alloc && m.mapped(p.offset):
		return &uapi.Error{Call: uapi.CallPut, Errno: unix.EBUSY}
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
	if errno := m.checkAlloc(a); errno != 0 {
		return refused(uapi.CallAlloc, errno)
	}
	a.Handle, a.MmapOffset = m.handle(), uint64(m.size)
	a.IOVA = uint64(m.size) << 20
	m.pins[a.Handle] = &fakePin{alloc: true, offset: m.size, Pin: uapi.Pin{Size: a.Size}}
	return m.grow(int64(a.Size))
}

func (m *fakeModule) setEvent(kind, index uint32, eventfd int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter("setEvent"); err != nil {
		return err
	}
	if errno := m.checkEvent(kind, index); errno != 0 {
		return refused(uapi.CallSetEvent, errno)
	}
	own, err := unix.FcntlInt(uintptr(eventfd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return refused(uapi.CallSetEvent, unix.EBADF)
	}
	m.events[[2]uint32{kind, index}] = own
	return nil
}

// signal does what the kernel's eventfd_signal does.
func (m *fakeModule) signal(kind, index uint32) {
	_, _ = unix.Write(m.events[[2]uint32{kind, index}], binary.NativeEndian.AppendUint64(nil, 1))
}

func (m *fakeModule) setHalt(ops []uapi.HaltOp) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter("setHalt"); err != nil {
		return err
	}
	if len(ops) > uapi.HaltOps {
		return refused(uapi.CallSetHalt, unix.EINVAL)
	}
	m.halt = ops
	return nil
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
	case uapi.ControlReset: // it has no FLR
		return 0, &uapi.Error{Call: uapi.CallControl, Errno: unix.EOPNOTSUPP}
	case uapi.ControlUnmask:
		if m.what.Flags&uapi.InfoINTX == 0 {
			return 0, &uapi.Error{Call: uapi.CallControl, Errno: unix.EOPNOTSUPP}
		}
		m.calls["unmask"]++
	default:
		return 0, &uapi.Error{Call: uapi.CallControl, Errno: unix.EINVAL}
	}
	return m.what.FenceGen, nil
}

func (m *fakeModule) fence() {
	m.what.State = uapi.StateFenced
	m.what.FenceGen++
}

func (m *fakeModule) mmap(offset uint64, size int) ([]byte, error) {
	if errno := m.fail["mmap"]; errno != 0 { // like the system call
		return nil, errno
	}
	if !m.isMappable(int64(offset), size) {
		return nil, unix.EINVAL
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

// invalidate is the MMU notifier.
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

// unplug removes the function, as in a hot-unplug.
func (m *fakeModule) unplug() {
	m.revoke(uapi.ReasonUnplug, func(*fakePin) bool { return true })
	m.mu.Lock()
	defer m.mu.Unlock()
	m.what.State, m.what.FenceGen = uapi.StateGone, math.MaxUint64
	m.signal(uapi.EventError, 0)
}

// lose makes the function lose its state, as in a suspend.
func (m *fakeModule) lose(why uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fence()
	m.what.Error = why
	m.what.Errors++
	m.signal(uapi.EventError, 0)
}
