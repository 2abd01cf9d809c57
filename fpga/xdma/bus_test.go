package xdma

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"tegracast/fpga"
	"tegracast/fpga/model"
)

var errFault = errors.New("address is not mapped")

// bus is host memory as the device sees it: scattered segments at addresses that nothing else uses.
type bus struct {
	mu     sync.RWMutex
	next   uint64
	areas  map[uint64][]byte // by first address; each at most 1 MiB apart
	faults int
}

const stride = 1 << 28 // distance of the areas

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

func (b *bus) Read(addr uint64, p []byte) error {
	mem, err := b.area(addr, len(p))
	if err == nil {
		copy(p, mem)
	}
	return err
}

func (b *bus) Write(addr uint64, p []byte) error {
	mem, err := b.area(addr, len(p))
	if err == nil {
		copy(mem, p)
	}
	return err
}

// memory makes size bytes in segments of the given length; the last one is shorter.
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

// run starts a model and opens the driver on it.
func run(t testing.TB, cfg model.Config) (*Device, *model.Device) {
	t.Helper()
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
	d, err := Open(Config{BARs: m.BARs(), Interrupts: m.Interrupts(), Alloc: cfg.Bus.(*bus).coherent})
	if err != nil {
		t.Fatal(err)
	}
	return d, m
}

func random(n int) []byte {
	rng := rand.NewChaCha8([32]byte{byte(n)})
	b := make([]byte, n)
	_, _ = rng.Read(b)
	return b
}

// alloc maps memory outside the Go heap, as the real thing is.
func alloc(n int) []byte {
	b, err := unix.Mmap(-1, 0, (n+4095)&^4095, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		panic(err)
	}
	return b[:n:n]
}
