// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Kinds of interrupts (linux/vfio.h), and the number of kinds.
const (
	irqINTx  = 0
	irqMSI   = 1
	irqMSIX  = 2
	irqError = 3 // never sent; QEMU warns if a function lacks it
	irqKinds = 5
)

// Flags of IRQ_INFO. "No resize" is not used, because QEMU would then remove all vectors before it adds one.
const (
	infoEventfd    = 1
	infoMaskable   = 2
	infoAutomasked = 4
)

// interrupts holds the client's eventfds, and the interrupts that wait for one.
//
// A message that is raised while its vector has no eventfd is kept until the vector gets one, like a pending interrupt
// of a masked vector. The line is level-triggered: its eventfd is written when the line is found asserted, and not
// again until the client has unmasked it, which QEMU does after the guest has accessed a BAR.
type interrupts struct {
	level   func() bool // of the line; nil: none
	vectors int         // number of MSI-X or MSI vectors, whichever is greater

	mu       sync.Mutex
	fds      [irqKinds][]int // eventfds of the vectors of each kind; -1: none
	granted  int             // number of MSI vectors, by Multiple Message Enable
	pending  []uint64        // bits of the MSI-X and MSI vectors
	masked   bool            // the line was signalled or masked, and not unmasked since
	disabled bool            // the line is disabled by the command register

	raised, kept uint64
}

func newInterrupts(f *Function) *interrupts {
	n := max(f.MSIX.Vectors, f.MSI)
	t := &interrupts{level: f.Line, vectors: n, pending: make([]uint64, (n+63)/64), granted: 1}
	line := 0
	if f.Line != nil {
		line = 1
	}
	for kind, n := range []int{line, f.MSI, f.MSIX.Vectors, 1} {
		t.fds[kind] = slices.Repeat([]int{-1}, n)
	}
	return t
}

// info answers IRQ_INFO.
func (t *interrupts) info(kind int) (flags, count uint32) {
	if len(t.fds[kind]) > 0 {
		flags = infoEventfd
	}
	if kind == irqINTx && flags != 0 {
		flags |= infoMaskable | infoAutomasked
	}
	return flags, uint32(len(t.fds[kind]))
}

// raise sends the message of a vector, or checks the line if the client uses that.
func (t *interrupts) raise(vector int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kind := t.active()
	if kind == irqINTx {
		t.signalLine()
		return
	}
	if vector < 0 || vector >= t.vectors {
		return
	}
	t.pending[vector/64] |= 1 << (vector % 64)
	if !t.send(kind, vector) {
		t.kept++
	}
}

// active returns the kind of interrupts that the client has set up, or MSI-X if there is none.
func (t *interrupts) active() int {
	for _, kind := range []int{irqMSIX, irqMSI, irqINTx} {
		if slices.ContainsFunc(t.fds[kind], func(fd int) bool { return fd >= 0 }) {
			return kind
		}
	}
	return irqMSIX
}

// send delivers the message of a pending vector. It returns false if the vector has no eventfd. A function with fewer
// MSI vectors granted than it has uses the low bits of the vector's number, because it can change only these in the
// message.
func (t *interrupts) send(kind, vector int) bool {
	fds := t.fds[kind]
	at := vector
	if kind == irqMSI {
		at %= t.granted
	}
	if at >= len(fds) || fds[at] < 0 {
		return false
	}
	t.pending[vector/64] &^= 1 << (vector % 64)
	t.signal(fds[at])
	return true
}

func (t *interrupts) signal(fd int) {
	var one [8]byte
	le.PutUint64(one[:], 1)
	_, _ = unix.Write(fd, one[:]) // fails if the counter is full: then the interrupt is pending anyway
	t.raised++
}

// flush delivers waiting interrupts. mu must be held.
func (t *interrupts) flush() {
	kind := t.active()
	if kind == irqINTx {
		t.signalLine()
		return
	}
	for vector := range t.vectors {
		if t.pending[vector/64]>>(vector%64)&1 != 0 {
			t.send(kind, vector)
		}
	}
}

// signalLine signals the line, which was unmasked or may have risen, if it is asserted and neither masked nor disabled.
func (t *interrupts) signalLine() {
	if fds := t.fds[irqINTx]; len(fds) > 0 && fds[0] >= 0 && !t.masked && !t.disabled && t.level() {
		t.masked = true
		t.signal(fds[0])
	}
}

// asserted returns the level of the line for the status register.
func (t *interrupts) asserted() bool { return t.level != nil && t.level() }

// configure applies the configuration space: whether the line is disabled, and how many MSI vectors are granted.
func (t *interrupts) configure(lineOff bool, granted int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.disabled, t.granted = lineOff, granted
	t.signalLine()
}

// reset drops waiting interrupts and unmasks the line, but keeps the eventfds.
func (t *interrupts) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.pending)
	t.masked = false
}

// pendingBytes returns n bytes of the MSI-X pending bit array, starting at byte off.
func (t *interrupts) pendingBytes(off, n int) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b []byte
	for _, w := range t.pending {
		b = le.AppendUint64(b, w)
	}
	return b[off : off+n]
}

// close closes all eventfds of a client that has disconnected.
func (t *interrupts) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for kind := range t.fds {
		t.assign(kind, 0, len(t.fds[kind]), nil)
	}
	t.masked = false
}

// assign sets the eventfds of count vectors from start on, or removes them if fds is nil. It closes the previous ones.
// mu must be held.
func (t *interrupts) assign(kind, start, count int, fds []int) {
	for i := range count {
		at := &t.fds[kind][start+i]
		if *at >= 0 {
			unix.Close(*at)
			*at = -1
		}
		if fds != nil {
			*at = fds[i]
		}
	}
	if kind == irqINTx {
		t.masked = false
	}
}

func (t *interrupts) fill(b *Books) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b.Raised, b.Kept = t.raised, t.kept
}
