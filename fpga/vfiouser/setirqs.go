// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// set handles a SET_IRQS (vfio-user, "VFIO_USER_DEVICE_SET_IRQS"). Only the line can be masked.
func (t *interrupts) set(m *message) unix.Errno {
	r, errno := m.irqRequest()
	if errno != 0 {
		return errno
	}
	if r.index >= irqKinds || r.start+r.count > len(t.fds[r.index]) {
		return unix.EINVAL
	}
	kind := int(r.index)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case r.action != irqTrigger && (kind != irqINTx || r.data == irqEventfd || r.count == 0):
		return unix.EINVAL
	case r.action != irqTrigger:
		t.mask(r)
	case r.data == irqEventfd && len(m.files) > 0:
		return t.accept(kind, r, m)
	case r.data == irqEventfd:
		if r.count == 0 {
			return unix.EINVAL
		}
		t.assign(kind, r.start, r.count, nil)
	case r.count == 0:
		if r.data != irqNone || r.start != 0 {
			return unix.EINVAL
		}
		t.assign(kind, 0, len(t.fds[kind]), nil)
	default:
		t.trigger(kind, r)
	}
	return 0
}

func (r *irqRequest) chooses(i int) bool { return r.data == irqNone || r.chosen[i] != 0 }

func (t *interrupts) mask(r irqRequest) {
	if !r.chooses(0) {
		return
	}
	if t.masked = r.action == irqMask; !t.masked {
		t.signalLine()
	}
}

// accept assigns the message's descriptors to the vectors. It returns EINVAL unless they are eventfds, because a write
// to anything else could block forever.
func (t *interrupts) accept(kind int, r irqRequest, m *message) unix.Errno {
	for _, fd := range m.files {
		if link, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)); err != nil || !strings.Contains(link, "[eventfd]") {
			return unix.EINVAL
		}
		if err := unix.SetNonblock(fd, true); err != nil {
			return unix.EINVAL
		}
	}
	fds := make([]int, r.count)
	for i := range fds {
		fds[i] = m.takeFile(i)
	}
	t.assign(kind, r.start, r.count, fds)
	t.flush()
	return 0
}

// trigger signals the eventfds of the chosen vectors, for tests by the client.
func (t *interrupts) trigger(kind int, r irqRequest) {
	for i := range r.count {
		if fd := t.fds[kind][r.start+i]; fd >= 0 && r.chooses(i) {
			t.signal(fd)
		}
	}
}
