// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

const (
	eduID        = 0x00
	eduLiveness  = 0x04
	eduIRQStatus = 0x24
	eduIRQRaise  = 0x60
	eduIRQAck    = 0x64
	eduSource    = 0x80
	eduTarget    = 0x88
	eduCount     = 0x90
	eduCommand   = 0x98
	eduBuffer    = 0x40000
	eduTime      = 100 * time.Millisecond
	eduTransfer  = 512 // bytes; the SMMU reports a fault every few bytes

	toDevice   = 1 | 4
	fromDevice = 1 | 2 | 4
)

// edu is QEMU's device. A DMA takes 100 ms, and its data move at the end.
type edu struct {
	regs    []byte
	msi     *event
	started time.Time // start of the last DMA
}

func (d *device) edu(t testing.TB) *edu {
	t.Helper()
	r, err := uapi.GetRegion(d.fd, 0)
	if err != nil {
		t.Fatal(err)
	}
	e := &edu{regs: d.mmap(t, r.MmapOffset, r.Size), msi: d.event(t, uapi.EventMSI)}
	t.Cleanup(e.close)
	e.idle()
	return e
}

// close unmaps the registers, whose mapping keeps the device open.
func (e *edu) close() {
	if e.regs != nil {
		_ = unix.Munmap(e.regs)
	}
	e.regs = nil
}

func (e *edu) reg(off int) *uint32     { return (*uint32)(unsafe.Pointer(&e.regs[off])) }
func (e *edu) read(off int) uint32     { return atomic.LoadUint32(e.reg(off)) }
func (e *edu) write(off int, v uint32) { atomic.StoreUint32(e.reg(off), v) }

func (e *edu) write64(off int, v uint64) {
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&e.regs[off])), v)
}

// start starts a DMA between the RAM at iova and the device's buffer.
func (e *edu) start(command uint32, iova uint64) {
	e.started = time.Now()
	source, target := iova, uint64(eduBuffer)
	if command&2 != 0 {
		source, target = target, source
	}
	e.write64(eduSource, source)
	e.write64(eduTarget, target)
	e.write64(eduCount, eduTransfer)
	e.write64(eduCommand, uint64(command))
}

// flying reports whether the DMA's data have not moved yet. edu's timer uses the guest's clock.
func (e *edu) flying() bool { return time.Since(e.started) < eduTime }

// finish waits for the DMA's interrupt.
func (e *edu) finish(t testing.TB) {
	t.Helper()
	e.msi.wait(t)
	e.write(eduIRQAck, e.read(eduIRQStatus))
}

// idle waits for a DMA whose interrupt may be lost, and discards the interrupt if it comes.
func (e *edu) idle() {
	for busy := true; busy; busy = e.read(eduCommand)&1 != 0 {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(10 * time.Millisecond) // for its interrupt
	e.write(eduIRQAck, e.read(eduIRQStatus))
	e.msi.count()
}

// roundTrip copies the first bytes of b, pinned at iova, to the device and back to b's second half.
func (e *edu) roundTrip(t testing.TB, b []byte, iova uint64) {
	t.Helper()
	half := len(b) / 2
	for i := range eduTransfer {
		b[i], b[half+i] = byte(i*5+1), 0
	}
	e.start(toDevice, iova)
	e.finish(t)
	e.start(fromDevice, iova+uint64(half))
	e.finish(t)
	for i := range eduTransfer {
		if b[half+i] != byte(i*5+1) {
			t.Fatalf("byte %d of the round trip is %#x", i, b[half+i])
		}
	}
}
