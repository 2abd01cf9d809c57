// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
)

var errFault = errors.New("address is not mapped")

// bus is host memory as seen by the device: scattered segments at unique addresses.
type bus struct {
	mu     sync.RWMutex
	next   uint64
	areas  map[uint64][]byte // by first address, a multiple of stride
	faults int

	rules    []error    // of PG195, broken by the driver
	breaking model.Rule // the one that a test allows it to break

	intercept func(p []byte, write func()) bool // may handle a write itself
	held      uint64                            // reads of this address wait for hold
	hold      chan struct{}
}

const stride = 1 << 28 // distance between the areas

func newBus() *bus { return &bus{next: 4 * stride, areas: map[uint64][]byte{}} }

func (b *bus) area(addr uint64, n int) ([]byte, error) {
	b.mu.RLock()
	mem, off := b.areas[addr/stride*stride], addr%stride
	b.mu.RUnlock()
	if uint64(len(mem)) < off+uint64(n) {
		b.mu.Lock()
		b.faults++
		b.mu.Unlock()
		return nil, errFault
	}
	return mem[off : off+uint64(n)], nil
}

// broken records that the driver broke a rule.
func (b *bus) broken(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.breaking == "" || !errors.Is(err, b.breaking) {
		b.rules = append(b.rules, err)
	}
}

// check fails the test if the driver broke a rule.
func (b *bus) check(t testing.TB) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, err := range b.rules {
		t.Errorf("the driver breaks a rule: %v", err)
	}
}

// hang makes reads of an address wait until hold is closed.
func (b *bus) hang(addr uint64, hold chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held, b.hold = addr, hold
}

// onWrite passes every write of the device to f first; f returns true if it handles the write itself, possibly by
// dropping it.
func (b *bus) onWrite(f func(p []byte, write func()) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.intercept = f
}

func (b *bus) Read(addr uint64, p []byte) error {
	b.mu.RLock()
	held, hold := b.held, b.hold
	b.mu.RUnlock()
	if hold != nil && held == addr {
		<-hold
	}
	mem, err := b.area(addr, len(p))
	if err == nil {
		copy(p, mem)
	}
	return err
}

func (b *bus) Write(addr uint64, p []byte) error {
	mem, err := b.area(addr, len(p))
	if err != nil {
		return err
	}
	b.mu.RLock()
	intercept := b.intercept
	b.mu.RUnlock()
	if intercept != nil {
		data := append([]byte{}, p...)
		if intercept(data, func() { copy(mem, data) }) {
			return nil
		}
	}
	copy(mem, p)
	return nil
}

// memory allocates size bytes in segments of the given length; the last one may be shorter.
func (b *bus) memory(size, segment int) fpga.Memory {
	m := fpga.Memory{Bytes: alloc(size)}
	b.mu.Lock()
	defer b.mu.Unlock()
	for off := 0; off < size; off += segment {
		n := min(segment, size-off)
		b.areas[b.next] = m.Bytes[off : off+n]
		m.Segments = append(m.Segments, fpga.Segment{Addr: b.next, Len: n})
		b.next += stride
	}
	return m
}

func (b *bus) coherent(size int) (Coherent, error) {
	return Coherent{Memory: b.memory(size, max(size, 1)), Close: func() error { return nil }}, nil
}

// tap sits between driver and model: it changes what registers read, swallows writes and loses interrupts.
type tap struct {
	fpga.Interrupts
	mu    sync.Mutex
	read  func(off, v uint32) uint32 // nil: unchanged
	write func(off, v uint32) bool   // reports whether it arrives; nil: all do
	raise func(ctx context.Context, vector int) (lost bool)
	raw   fpga.Registers
}

func (x *tap) Read32(off uint32) uint32 {
	v := x.raw.Read32(off)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.read != nil {
		v = x.read(off, v)
	}
	return v
}

func (x *tap) Write32(off, v uint32) {
	x.mu.Lock()
	f := x.write
	x.mu.Unlock()
	if f == nil || f(off, v) {
		x.raw.Write32(off, v)
	}
}

func (x *tap) Wait(ctx context.Context, vector int) error {
	for {
		err := x.Interrupts.Wait(ctx, vector)
		x.mu.Lock()
		f := x.raise
		x.mu.Unlock()
		if err != nil || f == nil || !f(ctx, vector) {
			return err
		}
	}
}

// on sets how register accesses are changed.
func (x *tap) on(read func(off, v uint32) uint32, write func(off, v uint32) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.read, x.write = read, write
}

// lose sets which interrupts are lost.
func (x *tap) lose(raise func(ctx context.Context, vector int) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.raise = raise
}

// startModel starts a model and opens the driver on it.
func startModel(t testing.TB, cfg model.Config, options ...func(*Config)) (*Device, *model.Device, *tap) {
	t.Helper()
	if b, ok := cfg.Bus.(*bus); ok {
		cfg.Broken = b.broken
		t.Cleanup(func() { b.check(t) })
	}
	m, err := model.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	bars := m.BARs()
	x := &tap{Interrupts: m.Interrupts(), raw: bars[1].Registers}
	bars[1].Registers = x
	c := Config{BARs: bars, Interrupts: x, Alloc: cfg.Bus.(interface {
		coherent(int) (Coherent, error)
	}).coherent}
	for _, o := range options {
		o(&c)
	}
	d, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return d, m, x
}

func polling(c *Config) { c.Poll, c.Interrupts = true, nil }

func random(n int) []byte {
	rng := rand.NewChaCha8([32]byte{byte(n)})
	b := make([]byte, n)
	_, _ = rng.Read(b)
	return b
}

// alloc maps memory outside the Go heap, like that of real devices.
func alloc(n int) []byte {
	b, err := unix.Mmap(-1, 0, (n+4095)&^4095, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		panic(err)
	}
	return b[:n]
}
