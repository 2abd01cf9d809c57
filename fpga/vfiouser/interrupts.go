// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Kinds of interrupts (linux/vfio.h).
const (
	irqINTx  = 0
	irqMSI   = 1
	irqMSIX  = 2
	irqError = 3 // never sent; QEMU warns of a function that has none
	irqKinds = 5
)

// Flags of IRQ_INFO. Without "no resize" QEMU adds a vector with one message; with it, it takes all away first.
const (
	infoEventfd    = 1
	infoMaskable   = 2
	infoAutomasked = 4
)

// interrupts are the eventfds that the client has given, and what waits for one.
//
// A message that is raised while its vector has no eventfd is kept until it gets one, as a masked vector keeps it
// pending. The line has a level: its eventfd is written when it is found asserted, and not again before the client has
// unmasked it, which QEMU does when the guest has touched a BAR.
type interrupts struct {
	level   func() bool // of the line; nil for none
	vectors int         // of MSI-X or MSI, whichever has more

	mu       sync.Mutex
	fds      [irqKinds][]int // -1 for none
	granted  int             // vectors of MSI, by Multiple Message Enable
	pending  []uint64        // bits of the vectors of MSI-X and MSI
	masked   bool            // the line was signalled, or masked
	disabled bool            // the line, by the command register

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

// raise sends a message of a vector, or looks at the line when that is what the client listens to.
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

// active is the kind of interrupts that the client has set up, MSI-X when there is none.
func (t *interrupts) active() int {
	for _, kind := range []int{irqMSIX, irqMSI, irqINTx} {
		if slices.ContainsFunc(t.fds[kind], func(fd int) bool { return fd >= 0 }) {
			return kind
		}
	}
	return irqMSIX
}

// send delivers a pending vector. A function that was granted fewer MSI vectors than it has uses the low bits of its
// number, which are all that it can change in the message.
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
	_, _ = unix.Write(fd, one[:]) // it fails when the counter is full: then it is raised
	t.raised++
}

// flush delivers what has waited.
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

// signalLine is a line's edge: it was unmasked, or may have risen.
func (t *interrupts) signalLine() {
	if fds := t.fds[irqINTx]; len(fds) > 0 && fds[0] >= 0 && !t.masked && !t.disabled && t.level() {
		t.masked = true
		t.signal(fds[0])
	}
}

// asserted is the level of the line, as the status register has it.
func (t *interrupts) asserted() bool { return t.level != nil && t.level() }

// configure follows the configuration space: whether the line is disabled, and how many MSI vectors are granted.
func (t *interrupts) configure(lineOff bool, granted int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.disabled, t.granted = lineOff, granted
	t.signalLine()
}

// reset forgets what waits; the eventfds stay.
func (t *interrupts) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.pending)
	t.masked = false
}

// pendingBytes are the pending bits as MSI-X shows them, n bytes from off on.
func (t *interrupts) pendingBytes(off, n int) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b []byte
	for _, w := range t.pending {
		b = le.AppendUint64(b, w)
	}
	return b[off : off+n]
}

// close closes all eventfds of a client that has gone.
func (t *interrupts) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for kind := range t.fds {
		t.assign(kind, 0, len(t.fds[kind]), nil)
	}
	t.masked = false
}

// assign gives vectors their eventfds, or with nil takes them away.
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
