// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tegracast/tegracast/fpga"
)

// host is the other end of the bus: memory in regions with holes between them, and the registers.
type host struct {
	t    testing.TB
	d    *Device
	regs fpga.Registers // DMA BAR

	mu      sync.Mutex
	regions []region
	next    uint64
	faults  []string
	rules   []error // broken rules
	lawless bool    // the test breaks rules at random
}

type region struct {
	addr  uint64
	bytes []byte
}

var errBus = errors.New("bus: nothing there")

func (h *host) find(addr uint64, n int) []byte {
	for _, r := range h.regions {
		if addr >= r.addr && addr-r.addr <= uint64(len(r.bytes)) && n <= len(r.bytes)-int(addr-r.addr) {
			return r.bytes[addr-r.addr:][:n]
		}
	}
	if len(h.faults) < 1000 {
		h.faults = append(h.faults, fmt.Sprintf("%d bytes at %#x", n, addr))
	}
	return nil
}

func (h *host) Read(addr uint64, p []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.find(addr, len(p))
	if m == nil {
		return errBus
	}
	copy(p, m)
	return nil
}

func (h *host) Write(addr uint64, p []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.find(addr, len(p))
	if m == nil {
		return errBus
	}
	copy(m, p)
	return nil
}

// alloc allocates a region that starts at a multiple of 4 KiB.
func (h *host) alloc(n int) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	addr := h.next
	h.next += uint64((n+4095)&^4095) + 1<<16
	h.regions = append(h.regions, region{addr, make([]byte, n)})
	return addr
}

// unmap takes a region away from the device.
func (h *host) unmap(addr uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.regions = slices.DeleteFunc(h.regions, func(r region) bool { return r.addr == addr })
}

// refused returns the accesses to unmapped addresses.
func (h *host) refused() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.faults)
}

func (h *host) bytes(addr uint64, n int) []byte {
	p := make([]byte, n)
	if err := h.Read(addr, p); err != nil {
		h.t.Helper()
		h.t.Fatal(err)
	}
	return p
}

func (h *host) word(addr uint64) uint32 { return binary.LittleEndian.Uint32(h.bytes(addr, 4)) }

func (h *host) writeMemory(addr uint64, p []byte) {
	h.t.Helper()
	if err := h.Write(addr, p); err != nil {
		h.t.Fatal(err)
	}
}

// desc is a descriptor as the driver would write it.
type desc struct {
	control, adjacent, length uint32
	src, dst, next            uint64
	magic                     uint32 // 0: the correct one
}

func (x desc) encode() []byte {
	magic := x.magic
	if magic == 0 {
		magic = 0xad4b
	}
	b := make([]byte, 0, 32)
	le := binary.LittleEndian
	b = le.AppendUint32(b, magic<<16|x.adjacent<<8|x.control)
	b = le.AppendUint32(b, x.length)
	b = le.AppendUint64(b, x.src)
	b = le.AppendUint64(b, x.dst)
	return le.AppendUint64(b, x.next)
}

// list writes descriptors to be fetched one by one, starting at addr; the last one points to last.
func (h *host) list(addr, last uint64, list []desc) {
	h.t.Helper()
	for i, x := range list {
		x.next = addr + uint64(i+1)*32
		if i == len(list)-1 {
			x.next = last
		}
		h.writeMemory(addr+uint64(i)*32, x.encode())
	}
}

func (h *host) r(off uint32) uint32 { return h.regs.Read32(off) }
func (h *host) w(off, v uint32)     { h.regs.Write32(off, v) }

// first sets the address of a channel's first descriptor; sgdma is 0x4c00 or 0x5c00.
func (h *host) first(sgdma uint32, addr uint64, adjacent uint32) {
	h.w(sgdma+0x80, uint32(addr))
	h.w(sgdma+0x84, uint32(addr>>32))
	h.w(sgdma+0x88, adjacent)
}

// eventually waits until a condition holds.
func (h *host) eventually(what string, cond func() bool) {
	h.t.Helper()
	for deadline := time.Now().Add(time.Minute); !cond(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(deadline) {
			h.t.Fatalf("timeout: %s; H2C status %#x count %d, C2H status %#x count %d, faults %v, broken rules %v", what,
				h.r(0x0040), h.r(0x0048), h.r(0x1040), h.r(0x1048), h.faults, h.broken())
		}
	}
}

func (h *host) idle(channel uint32) {
	h.t.Helper()
	h.eventually("Busy = 0", func() bool { return h.r(channel+0x40)&1 == 0 })
}

// newHost creates a device and its memory, without running it.
func newHost(t testing.TB, config func(Bus) Config) *host {
	t.Helper()
	h := &host{t: t, next: 0x12_3456_0000}
	cfg := config(h)
	cfg.Broken = func(err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.lawless {
			h.rules = append(h.rules, err)
		}
	}
	t.Cleanup(func() {
		for _, err := range h.broken() {
			t.Errorf("the test breaks a rule: %v", err)
		}
	})
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h.d, h.regs = d, d.BARs()[1].Registers
	return h
}

// broken returns the rules broken since the last call.
func (h *host) broken() []error {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.rules
	h.rules = nil
	return list
}

// breaks checks that this rule, and no other, was broken since the last call; "": none. A test that breaks rules must
// call it.
func (h *host) breaks(want Rule) {
	h.t.Helper()
	list := h.broken()
	for _, err := range list {
		if !errors.Is(err, want) {
			h.t.Errorf("broken: %v, want %v", err, want)
		}
	}
	if want != "" && len(list) == 0 {
		h.t.Errorf("no rule was broken, want %v", want)
	}
}

// startDevice runs the device until the test ends.
func (h *host) startDevice() *host {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.d.Run(ctx) }()
	h.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			h.t.Error(err)
		}
	})
	return h
}

func testPattern(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i*31 + i>>8)
	}
	return p
}
