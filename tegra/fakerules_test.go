// SPDX-License-Identifier: Apache-2.0

package tegra

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
	"github.com/tegracast/tegracast/tegra/vma"
)

// checkPin returns the errno of PIN, checked in the order of the module's tp_pin: arguments, number, fence, overlap,
// memory.
func (m *fakeModule) checkPin(p *uapi.Pin) unix.Errno {
	const known, expects = uapi.PinToDevice | uapi.PinFromDevice | uapi.PinExpectWB | uapi.PinExpectWC, uapi.PinExpectWB | uapi.PinExpectWC
	switch {
	case p.Flags&^known != 0, p.Flags&(uapi.PinToDevice|uapi.PinFromDevice) == 0, p.Flags&expects == expects,
		p.VA == 0, p.Size == 0, (p.VA|p.Size)%PageSize != 0, p.VA+p.Size < p.VA:
		return unix.EINVAL
	case p.Size > MaxPinSize:
		return unix.E2BIG
	case len(m.pins) == MaxPins:
		return unix.ENOSPC
	case m.what.State == uapi.StateFenced:
		return unix.ESTALE
	case m.overlapping(p):
		return unix.EBUSY
	case vma.Check(uintptr(p.VA), int(p.Size), p.Flags&uapi.PinFromDevice != 0) != nil:
		return unix.EFAULT
	case p.Flags&uapi.PinExpectWC != 0:
		return unix.EMEDIUMTYPE
	}
	return 0
}

// overlapping reports whether a live pin shares memory with the requested one.
func (m *fakeModule) overlapping(p *uapi.Pin) bool {
	for _, o := range m.pins {
		if !o.alloc && o.state == uapi.PinLive && p.VA < o.VA+o.Size && o.VA < p.VA+p.Size {
			return true
		}
	}
	return false
}

// checkAlloc returns the errno of ALLOC.
func (m *fakeModule) checkAlloc(a *uapi.Alloc) unix.Errno {
	switch {
	case a.Flags != 0, a.Pad != 0, a.Size == 0, a.Size%PageSize != 0:
		return unix.EINVAL
	case a.Size > MaxCoherentSize:
		return unix.E2BIG
	case len(m.pins) == MaxPins:
		return unix.ENOSPC
	case m.what.State == uapi.StateFenced:
		return unix.ESTALE
	}
	return 0
}

// checkEvent returns the errno of SET_EVENT for a kind and a vector.
func (m *fakeModule) checkEvent(kind, index uint32) unix.Errno {
	if kind > uapi.EventError || kind == uapi.EventMSI && index >= m.what.NIRQs || kind != uapi.EventMSI && index != 0 {
		return unix.EINVAL
	}
	return 0
}

// isMappable reports whether a range of the memory is exactly a BAR or an allocation, which can only be mapped as a
// whole.
func (m *fakeModule) isMappable(offset int64, size int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if offset == 0 && size == fakeBAR {
		return true
	}
	for _, p := range m.pins {
		if p.alloc && p.offset == offset {
			return uint64(size) == p.Size
		}
	}
	return false
}

// mapped reports whether this process has mapped the memory at an offset.
func (m *fakeModule) mapped(offset int64) bool {
	var st unix.Stat_t
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil || unix.Fstat(int(m.memory.Fd()), &st) != nil {
		return false
	}
	for line := range bytes.Lines(maps) { // first-last prot offset device inode name
		f := strings.Fields(string(line))
		if len(f) > 5 && f[4] == fmt.Sprint(st.Ino) && f[2] == fmt.Sprintf("%08x", offset) && strings.HasPrefix(f[5], "/memfd:fake") {
			return true
		}
	}
	return false
}
