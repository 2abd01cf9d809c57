// SPDX-License-Identifier: Apache-2.0

package edu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/fpga"
)

// model is the device at register level (QEMU hw/misc/edu.c), on a bus with an IOMMU: it can access what is mapped when
// it moves the data. Broken rules, for which QEMU exits, clamps an address or ignores the write, are failures here.
type model struct {
	mu       sync.Mutex
	ram      []byte
	mapped   []fpga.Segment
	buffer   [4096]byte
	live     uint32
	status   uint32
	src, dst uint32
	count    uint32
	command  uint32
	msi      chan struct{}
	commands int
	most     int           // longest transfer
	takes    time.Duration // duration of a command
	silent   bool          // no MSI
	gone     bool
	failed   error // the first broken rule
}

func (m *model) fail(format string, a ...any) {
	if m.failed == nil {
		m.failed = fmt.Errorf(format, a...)
	}
}

func newModel() *model {
	return &model{ram: make([]byte, 1<<20), msi: make(chan struct{}, 1), takes: 100 * time.Millisecond}
}

func (m *model) Read32(off uint32) uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone {
		return math.MaxUint32
	}
	switch off {
	case 0:
		return 0x010000ed
	case 4:
		return ^m.live
	case 0x24:
		return m.status
	case 0x98:
		return m.command
	}
	return math.MaxUint32
}

func (m *model) Write32(off, v uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if off >= 0x80 && m.command&1 != 0 { // dma_rw ignores it
		m.fail("register %#x was written while a command runs", off)
		return
	}
	switch off {
	case 4:
		m.live = v
	case 0x64:
		m.status &^= v
	case 0x80:
		m.src = v
	case 0x88:
		m.dst = v
	case 0x90:
		m.count = v
	case 0x98:
		if m.command = v; v&1 != 0 {
			m.commands++
			time.AfterFunc(m.takes, m.expire)
		}
	default:
		m.fail("register %#x was written, which there is not", off)
	}
}

// expire moves all data at one instant, like the device's timer.
func (m *model) expire() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.most = max(m.most, int(m.count))
	device, host := m.dst, m.src
	if m.command&2 != 0 {
		device, host = host, device
	}
	if device < 0x40000 || device+m.count >= 0x41000 {
		m.fail("EDU: DMA range out of bounds")
		return
	}
	if !m.reaches(host, m.count) {
		m.fail("the IOMMU refused %d bytes at %#x", m.count, host)
	} else {
		m.move(device, host)
	}
	m.complete()
}

// reaches reports whether a range lies within one mapped segment.
func (m *model) reaches(at, n uint32) bool {
	return slices.ContainsFunc(m.mapped, func(s fpga.Segment) bool {
		return uint64(at) >= s.Addr && uint64(at)+uint64(n) <= s.Addr+uint64(s.Len)
	})
}

func (m *model) move(device, host uint32) {
	in, out := m.ram[host:host+m.count], m.buffer[device-0x40000:][:m.count]
	if m.command&2 != 0 {
		in, out = out, in
	}
	copy(out, in)
}

func (m *model) complete() {
	if m.command &^= 1; m.command&4 != 0 {
		m.status |= 0x100
	}
	if !m.silent {
		select {
		case m.msi <- struct{}{}:
		default:
		}
	}
}

// Wait implements fpga.Interrupts.
func (m *model) Vectors() int { return 1 }

func (m *model) Wait(ctx context.Context, vector int) error {
	if vector != 0 {
		return errors.New("edu has one vector")
	}
	select {
	case <-m.msi:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// memory maps segments for the device, until unmap.
func (m *model) memory(segments ...fpga.Segment) fpga.Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mapped = append(m.mapped, segments...)
	return fpga.Memory{Segments: segments}
}

// unmap takes all memory away from the device.
func (m *model) unmap() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mapped = nil
}

// open opens the device. At its end, the test fails if a rule was broken.
func open(t *testing.T, m *model) *Device {
	t.Helper()
	t.Cleanup(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.failed != nil {
			t.Error(m.failed)
		}
	})
	d, err := Open(Config{Registers: m, Interrupts: m})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func fill(b []byte) {
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
}

func TestLoopback(t *testing.T) {
	for name, silent := range map[string]bool{"interrupts": false, "lost interrupts": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel()
				m.silent = silent
				d := open(t, m)
				fill(m.ram[:BufferSize])
				out := m.memory(fpga.Segment{Addr: 0, Len: 1000}, fpga.Segment{Addr: 1000, Len: BufferSize - 1000})
				in := m.memory(fpga.Segment{Addr: 0x80000, Len: 3000}, fpga.Segment{Addr: 0x90000, Len: BufferSize - 3000})
				begin := time.Now()
				for dir, mem := range []fpga.Memory{fpga.H2C: out, fpga.C2H: in} {
					if err := d.Transfer(t.Context(), fpga.Direction(dir), mem); err != nil {
						t.Fatal(err)
					}
				}
				got := append(append([]byte{}, m.ram[0x80000:][:3000]...), m.ram[0x90000:][:BufferSize-3000]...)
				if !bytes.Equal(got, m.ram[:BufferSize]) {
					t.Error("bytes differ")
				}
				if m.commands != 4 || m.status != 0 || m.most > BufferSize {
					t.Errorf("%d commands, interrupt status %#x, longest %d", m.commands, m.status, m.most)
				}
				if took := time.Since(begin); !silent && took != 400*time.Millisecond {
					t.Errorf("took %v: it does not wait for the interrupt", took)
				}
			})
		})
	}
}

func TestMemoryThatDoesNotFit(t *testing.T) {
	m := newModel()
	d := open(t, m)
	for name, mem := range map[string]fpga.Memory{
		"nothing":     m.memory(),
		"4089 bytes":  m.memory(fpga.Segment{Addr: 0, Len: BufferSize + 1}),
		"two of them": m.memory(fpga.Segment{Addr: 0, Len: BufferSize}, fpga.Segment{Addr: 0, Len: 1}),
		"28 bits":     m.memory(fpga.Segment{Addr: 1<<28 - 8, Len: 16}),
		"far beyond":  m.memory(fpga.Segment{Addr: math.MaxUint64 - 8, Len: 16}),
		"negative":    m.memory(fpga.Segment{Addr: 0, Len: -16}, fpga.Segment{Addr: 0, Len: 32}),
	} {
		if err := d.Transfer(t.Context(), fpga.H2C, mem); !errors.Is(err, ErrMemory) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if m.commands != 0 {
		t.Errorf("%d commands", m.commands)
	}
}

// TestCancel checks that when nobody waits any more, the memory is released before Transfer returns, or else the error
// says that it was not.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		d := open(t, m)
		mem := m.memory(fpga.Segment{Addr: 0, Len: 64})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := d.Transfer(ctx, fpga.H2C, mem); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrBusy) {
			t.Error(err)
		}
		if m.command&1 != 0 {
			t.Error("the command still runs")
		}
		m.unmap() // it has been released
		mem = m.memory(fpga.Segment{Addr: 4096, Len: 64})
		m.takes = 8 * time.Second
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.Transfer(ctx, fpga.H2C, mem); !errors.Is(err, ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		m.takes = time.Millisecond
		if err := d.Transfer(t.Context(), fpga.C2H, mem); err != nil { // after the one that is still in progress
			t.Error(err)
		}
		m.unmap()
		time.Sleep(time.Minute) // nothing is in progress
	})
}

func TestOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		d := open(t, m)
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				if err := d.Transfer(t.Context(), fpga.C2H, m.memory(fpga.Segment{Addr: uint64(i * 4096), Len: 8})); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if m.commands != 5 {
			t.Error(m.commands)
		}
	})
}

func TestGone(t *testing.T) {
	m := newModel()
	d := open(t, m)
	m.gone = true
	if err := d.Transfer(t.Context(), fpga.C2H, m.memory(fpga.Segment{Len: 8})); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	if _, err := Open(Config{Registers: m, Interrupts: m}); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}
