// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/fpga/vfiouser"
	"github.com/tegracast/tegracast/fpga/vfiouser/vfiousertest"
	"github.com/tegracast/tegracast/fpga/xdma"
)

// machine is a client with RAM in place of a virtual machine.
type machine struct {
	t       testing.TB
	card    *Endpoint
	client  *vfiousertest.Client
	ram     *vfiousertest.RAM
	vectors *vfiousertest.Vectors
	layout  []uint32 // indexes of the user, DMA and bypass BAR
}

const iovaBase = 0x7f_0000_0000 // differs from all offsets in the file

func plug(t testing.TB, cfg Config) *machine {
	t.Helper()
	card, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := card.Close(); err != nil {
			t.Error(err)
		}
	})
	m := &machine{t: t, card: card, layout: []uint32{0, 1, 2}}
	for i, b := range cfg.Function.BARs {
		m.layout[i] = uint32(b.Index)
	}
	m.connect()
	return m
}

// connect does what QEMU and the guest do: greeting, reset, bus mastering, MSI-X or another kind of interrupts.
func (m *machine) connect() {
	m.t.Helper()
	m.client = vfiousertest.Dial(m.t, m.card.Path())
	m.client.Greet()
	m.client.Do(vfiousertest.Reset, nil)
	m.master(true)
	m.ram = m.client.NewRAM(64 << 20)
	m.vectors = m.client.NewVectors(Vectors)
}

func (m *machine) master(on bool) {
	m.t.Helper()
	command := []byte{2, 0}
	if on {
		command[0] |= 4
	}
	if r := m.client.Write(7, 4, command); r.Flags != 1 {
		m.t.Fatalf("command register: %+v", r)
	}
}

func (m *machine) alloc(size, segment int) fpga.Memory {
	return m.ram.Alloc(m.client, iovaBase, size, segment)
}

// open opens the driver on the BARs over the connection.
func (m *machine) open(options ...func(*xdma.Config)) *xdma.Device {
	m.t.Helper()
	cfg := xdma.Config{Interrupts: m.vectors, Alloc: func(size int) (xdma.Coherent, error) {
		mem := m.alloc(size, size)
		return xdma.Coherent{Memory: mem, Close: func() error { m.ram.Free(m.client, mem); return nil }}, nil
	}}
	for _, i := range m.layout {
		cfg.BARs = append(cfg.BARs, fpga.BAR{Index: int(i), Size: model.BARSize, Registers: vfiousertest.Window{C: m.client, Index: i}})
	}
	for _, o := range options {
		o(&cfg)
	}
	d, err := xdma.Open(cfg)
	if err != nil {
		m.t.Fatal(err)
	}
	return d
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n)}).Read(b)
	return b
}

// transfer runs a transfer and returns its error.
func transfer(t testing.TB, d *xdma.Device, dir fpga.Direction, mem fpga.Memory) error {
	t.Helper()
	tr, err := d.NewTransfer(dir, 0, mem, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	_, err = tr.Run(t.Context())
	return err
}

// loopback sends size bytes to the card and compares all that return.
func (m *machine) loopback(d *xdma.Device, size int) {
	m.t.Helper()
	src, dst := m.alloc(size, 64<<10), m.alloc(size, 64<<10)
	copy(src.Bytes, random(size))
	for i := range dst.Bytes {
		dst.Bytes[i] = ^src.Bytes[i]
	}
	for dir, mem := range []fpga.Memory{src, dst} {
		if err := transfer(m.t, d, fpga.Direction(dir), mem); err != nil {
			m.t.Fatalf("%d bytes %v: %v", size, fpga.Direction(dir), err)
		}
	}
	if !bytes.Equal(src.Bytes, dst.Bytes) {
		m.t.Fatalf("%d bytes came back as others", size)
	}
	m.ram.Free(m.client, src)
	m.ram.Free(m.client, dst)
}

// unmask is QEMU's handling of a line interrupt.
func (m *machine) unmask() {
	m.t.Helper()
	if r := m.client.Do(vfiousertest.SetIRQs, vfiousertest.Cat(uint32(20), uint32(1|1<<4), uint32(0), uint32(0), uint32(1))); r.Flags != 1 {
		m.t.Fatalf("unmask: %+v", r)
	}
}

// line implements fpga.Interrupts by the interrupt line: it is unmasked after each signal, and signals again if it is
// still asserted.
type line struct{ m *machine }

func (l line) Vectors() int { return 1 }

func (l line) Wait(ctx context.Context, vector int) error {
	err := l.m.vectors.Wait(ctx, vector)
	if err == nil {
		l.m.unmask()
	}
	return err
}

func bigCard() model.Config {
	cfg := model.Loopback(nil)
	cfg.RAM = 4 << 20
	return cfg
}

// TestLoopback drives the card by fpga/xdma over the connection, with each kind of interrupts and with none, on BARs of
// several layouts.
func TestLoopback(t *testing.T) {
	wide := []vfiouser.BAR{
		{Index: 0, Size: 1 << 20, Bits64: true},
		{Index: 2, Size: 8 << 30, Bits64: true, Prefetchable: true},
		{Index: 4, Size: 64 << 10, Bits64: true},
	}
	gpu := vfiouser.Function{Vendor: 0x10de, Device: 1, Class: 0x030200, BARs: wide, MSI: 32, Link: vfiouser.Link{Speed: 4, Width: 16}}
	for _, c := range []struct {
		name string
		cfg  Config
		kind int
		poll bool
	}{
		{"msix", Config{Card: bigCard()}, 2, false},
		{"msi", Config{Card: bigCard(), Function: gpu}, 1, false},
		{"line", Config{Card: bigCard(), INTx: true}, 0, false},
		{"poll", Config{Card: bigCard(), Function: gpu}, -1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := plug(t, c.cfg)
			if c.kind == 1 { // all 32 are granted
				m.client.Write(7, 0x48+2, []byte{5<<4 | 1, 0})
			}
			if c.kind == 0 {
				m.vectors = m.client.NewVectors(1)
			}
			if c.kind >= 0 {
				m.vectors.Assign(m.client, uint32(c.kind))
			}
			d := m.open(func(x *xdma.Config) {
				x.Watchdog = time.Hour // a lost interrupt makes the test hang
				if c.kind == 0 {
					x.Interrupts = line{m}
				}
				if c.poll {
					x.Poll, x.Interrupts, x.Watchdog = true, nil, 0
				}
			})
			sizes := []int{1, 3, 4, 63, 4095, 4096, 4097, 65535, 65536, 65537, 1<<20 + 1, 4<<20 - 1, 4 << 20}
			for range 5 {
				sizes = append(sizes, 1+rand.IntN(256<<10))
			}
			total := 0
			for _, n := range sizes {
				m.loopback(d, n)
				total += n
			}
			b := m.card.Books()
			if b.Refused != 0 || b.Read < uint64(total) || b.Written < uint64(total) || b.Errors != 0 {
				t.Errorf("after %d bytes each way: %+v", total, b)
			}
			if c.kind >= 0 && b.Raised == 0 {
				t.Error("no interrupt was raised")
			}
		})
	}
}

// TestLine checks the interrupt line: level-triggered, automasked, signalled again when it is unmasked while asserted.
func TestLine(t *testing.T) {
	m := plug(t, Config{Card: bigCard(), INTx: true})
	line := m.client.NewVectors(1)
	line.Assign(m.client, 0)
	dma := vfiousertest.Window{C: m.client, Index: 1}
	status := func() byte { return m.client.Read(7, 6, 1).Body[16] >> 3 & 1 }
	unmask := m.unmask
	dma.Write32(0x2014, 1) // channel interrupt enable
	dma.Write32(0x0090, 1<<1)
	dma.Write32(0x2010, 1)
	src := m.alloc(4096, 4096)
	list := m.alloc(32, 32)
	copy(list.Bytes, vfiousertest.Cat(uint32(0xad4b<<16|3), uint32(4096), src.Segments[0].Addr, uint64(0), uint64(0)))
	dma.Write32(0x4080, uint32(list.Segments[0].Addr))
	dma.Write32(0x4084, uint32(list.Segments[0].Addr>>32))
	if line.Raised(0) != 0 || status() != 0 {
		t.Fatal("the line is asserted before anything has happened")
	}
	dma.Write32(0x0004, 1|1<<1|1<<2)
	if err := line.Wait(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if status() != 1 {
		t.Error("the line is asserted, and the status register does not say so")
	}
	unmask() // the cause is still there: once more
	if n := line.Raised(0); n != 1 {
		t.Errorf("unmasked while asserted: raised %d times, want 1", n)
	}
	if dma.Read32(0x0044) == 0 { // the cause goes
		t.Error("the channel has no status")
	}
	unmask()
	if n := line.Raised(0); n != 0 || status() != 0 {
		t.Errorf("unmasked while quiet: raised %d times, status %d", n, status())
	}
}

// TestRefusals checks that accesses to unmapped memory are refused, counted, and shown to the machine.
func TestRefusals(t *testing.T) {
	m := plug(t, Config{Card: bigCard()})
	m.card.ExpectRefusals()
	m.vectors.Assign(m.client, 2)
	d := m.open()
	mem := m.alloc(8192, 4096)
	stale := mem.Segments[1].Addr
	m.client.Unmap(stale, 4096, 0)
	before := m.card.Books()
	var status *xdma.StatusError
	if err := transfer(t, d, fpga.H2C, mem); !errors.As(err, &status) || !strings.Contains(err.Error(), "unsupported") {
		t.Errorf("H2C from an unmapped page: %v", err)
	}
	if err := transfer(t, d, fpga.C2H, mem); err != nil { // posted: the engine does not notice
		t.Errorf("C2H to an unmapped page: %v", err)
	}
	b := m.card.Books()
	want := []vfiouser.Refusal{{Addr: stale, Len: 4096}, {Addr: stale, Len: 4096, Write: true}}
	if b.Refused-before.Refused != 2 || !slices.Equal(b.LastRefused, want) {
		t.Errorf("the books say %+v", b)
	}
	for deadline := time.Now().Add(time.Minute); len(m.client.Asked()) < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the machine was shown %#x", m.client.Asked())
		}
	}
	if got := m.client.Asked(); !slices.Equal(got, []uint64{stale, stale}) {
		t.Errorf("the machine was shown %#x, want %#x twice", got, stale)
	}
	// Without Bus Master Enable nothing leaves the card, and nothing is reported.
	m.master(false)
	if err := transfer(t, d, fpga.H2C, fpga.Memory{Bytes: mem.Bytes[:4096], Segments: mem.Segments[:1]}); !errors.As(err, &status) {
		t.Errorf("H2C without bus mastering: %v", err)
	}
	m.master(true)
	if err := transfer(t, d, fpga.H2C, fpga.Memory{Bytes: mem.Bytes[:4096], Segments: mem.Segments[:1]}); err != nil {
		t.Errorf("H2C after it: %v", err)
	}
	if n := len(m.client.Asked()); n != 2 {
		t.Errorf("the machine was shown %d accesses", n)
	}
}

// TestCardComesAndGoes checks that the connection survives the card, and the card the connection.
func TestCardComesAndGoes(t *testing.T) {
	m := plug(t, Config{Card: bigCard()})
	m.vectors.Assign(m.client, 2)
	m.loopback(m.open(), 100_000)
	m.card.Kill()
	if b := m.client.Read(7, 0, 2).Body[16:]; !bytes.Equal(b, []byte{0xee, 0x10}) {
		t.Errorf("the configuration space of a card that was killed begins with %x", b)
	}
	if v := (vfiousertest.Window{C: m.client, Index: 1}).Read32(0x2000); v != 0xffffffff {
		t.Errorf("a register of a card that was killed reads %#x", v)
	}
	if err := m.card.Insert(); err != nil {
		t.Fatal(err)
	}
	m.loopback(m.open(), 100_000)
	m.card.Remove()
	if b := m.client.Read(7, 0, 4).Body[16:]; !bytes.Equal(b, []byte{255, 255, 255, 255}) || m.card.Card() != nil {
		t.Errorf("the configuration space of a card that is gone begins with %x", b)
	}
	if v := (vfiousertest.Window{C: m.client, Index: 1}).Read32(0x2000); v != 0xffffffff {
		t.Errorf("a register of a card that is gone reads %#x", v)
	}
	if err := m.card.Insert(); err != nil {
		t.Fatal(err)
	}
	if err := m.card.Insert(); !errors.Is(err, ErrConfig) {
		t.Errorf("a second card in the slot: %v", err)
	}
	m.loopback(m.open(), 100_000)
	for range 3 { // unplug and plug in again
		m.client.Close()
		m.connect()
		m.vectors.Assign(m.client, 2)
		m.loopback(m.open(), 100_000)
	}
	if b := m.card.Books(); b.Clients != 4 || b.LastError != "" {
		t.Errorf("%+v", b)
	}
}

func TestConfig(t *testing.T) {
	two := []vfiouser.BAR{{Index: 0, Size: 65536}, {Index: 1, Size: 65536}}
	for name, c := range map[string]struct {
		change func(*Config)
		want   error
	}{
		"bus":       {func(c *Config) { c.Card.Bus = &vfiouser.Memory{} }, ErrConfig},
		"one BAR":   {func(c *Config) { c.Function.BARs = two[:1] }, ErrConfig},
		"small BAR": {func(c *Config) { c.Function.BARs = []vfiouser.BAR{two[0], {Index: 1, Size: 4096}} }, ErrConfig},
		"vectors":   {func(c *Config) { c.Function.MSIX.Vectors = 33 }, ErrConfig},
		"table":     {func(c *Config) { c.Function.MSIX = vfiouser.MSIX{Vectors: 8, Table: 0x1000} }, ErrConfig},
		"MSI":       {func(c *Config) { c.Function.MSI = 3 }, vfiouser.ErrFunction},
		"channels":  {func(c *Config) { c.Card.H2C = nil }, ErrConfig},
		"two BARs":  {func(c *Config) { c.Function.BARs = two }, nil},
	} {
		cfg := Config{Card: bigCard()}
		c.change(&cfg)
		e, err := New(cfg)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if e != nil {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
