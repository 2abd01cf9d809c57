// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/tegracast/tegracast/fpga"
)

// ErrRan says that Run was called a second time.
var ErrRan = errors.New("model: the device has been run already, make a new one")

// goneValue is what the registers of a missing device read.
const goneValue = 0xffffffff

// Device is the FPGA. Its registers answer from New on; engines and cameras work while Run runs; when Run has
// returned the device has gone and every register reads all ones.
type Device struct {
	cfg   Config
	clock Clock

	ran  atomic.Bool
	gone atomic.Bool // Run has returned
	down atomic.Bool // the link is lost, F4

	running sync.WaitGroup // what Run waits for

	// mu guards all registers and the queues between cameras, FIFOs, sinks and engines. It is never held while the bus
	// is used, a frame is built, or the clock is waited for.
	mu       sync.Mutex
	h2c      []*engine
	c2h      []*engine
	common   common
	irq      irqBlock
	msix     msix
	cameras  []*camera
	designs  []*designCamera
	blocks   []cameraBlock // of both, as far as they have one
	counter  counter
	clockPPM float64 // of the counter's own rate
	timeSet  timeSet
	resets   uint64 // whoever let go of mu and finds it changed has nothing left to do
	timers   timers
	faults   faultState

	ram blockRAM
}

// A cameraBlock is called with Device.mu held.
type cameraBlock interface {
	readRegister(off uint32) uint32
	writeRegister(off, v uint32)
	// raises is the level of the user interrupt.
	raises() bool
}

// common is the SGDMA common block (0x6000): bits 3:0 H2C, 19:16 C2H.
type common struct{ halt, creditMode uint32 }

// New makes a device in its reset state.
func New(cfg Config) (*Device, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	d := &Device{cfg: cfg, clock: cfg.Clock, ram: blockRAM{bytes: make([]byte, cfg.RAM)}}
	d.counter = counter{at: d.clock.Now(), ppm: cfg.ClockPPM}
	d.clockPPM = cfg.ClockPPM
	d.timers.wake = make(chan struct{}, 1)
	d.faults.on.Store(len(cfg.Faults.Rates) > 0)
	d.msix.count = max(cfg.MSI, 0)
	if cfg.MSI == 0 {
		d.msix.count = msixVectors
	}
	for i := range d.msix.vectors {
		d.msix.vectors[i] = make(chan struct{}, 1)
	}
	for i, kind := range cfg.H2C {
		d.h2c = append(d.h2c, newEngine(d, fpga.H2C, i, kind == Stream))
	}
	for i, kind := range cfg.C2H {
		d.c2h = append(d.c2h, newEngine(d, fpga.C2H, i, kind == Stream))
	}
	d.connectStreams()
	return d, nil
}

// connectStreams gives every C2H stream channel its source and every H2C stream channel its sink.
func (d *Device) connectStreams() {
	for i, cfg := range d.cfg.Sinks {
		d.h2c[i].frames = &frameSink{d: d, e: d.h2c[i], cfg: cfg}
		d.h2c[i].sink = d.h2c[i].frames
	}
	for i, e := range d.c2h {
		if !e.stream {
			continue
		}
		if n := len(d.cameras); n < len(d.cfg.Sensors) {
			c := newCamera(d, len(d.blocks), d.cfg.Sensors[n], e)
			d.cameras, e.source = append(d.cameras, c), c
			if !c.sensor.cfg.Bare {
				d.blocks = append(d.blocks, c)
			}
			continue
		}
		if n := len(d.designs); n < len(d.cfg.Designs) {
			c := newDesignCamera(d, d.cfg.Designs[n], e)
			d.designs, d.blocks, e.source = append(d.designs, c), append(d.blocks, c), c
			continue
		}
		f := &fifo{reader: e}
		e.source = f
		if i < len(d.h2c) && d.h2c[i].stream && d.h2c[i].sink == nil {
			f.writer = d.h2c[i]
			d.h2c[i].sink = f
		}
	}
}

// BARs are the user BAR 0 (camera blocks), the DMA BAR 1 (XDMA registers) and the bypass BAR 2 (block RAM).
func (d *Device) BARs() []fpga.BAR {
	window := func(index int, read func(uint32) uint32, write func(uint32, uint32)) fpga.BAR {
		return fpga.BAR{Index: index, Size: BARSize, Registers: &window{d: d, read: read, write: write}}
	}
	return []fpga.BAR{
		window(0, d.readUser, d.writeUser),
		window(1, d.readDMA, d.writeDMA),
		window(2, d.ram.read32, d.ram.write32),
	}
}

// Interrupts delivers the vectors by their numbers in the IRQ block's vector registers.
func (d *Device) Interrupts() fpga.Interrupts { return &d.msix }

// Run works until ctx ends and returns nil. Nothing touches the bus after it has returned. A device runs once.
func (d *Device) Run(ctx context.Context) error {
	if d.ran.Swap(true) {
		return ErrRan
	}
	stop := context.AfterFunc(ctx, d.kickAll)
	defer stop()
	for _, e := range d.engines() {
		d.running.Go(func() { e.run(ctx) })
	}
	for _, c := range d.cameras {
		d.running.Go(func() { c.run(ctx) })
	}
	for _, c := range d.designs {
		d.running.Go(func() { c.run(ctx) })
	}
	d.running.Go(func() { d.runTimers(ctx) })
	d.running.Wait()
	<-ctx.Done()
	d.gone.Store(true)
	return nil
}

// kickAll makes every goroutine look again.
func (d *Device) kickAll() {
	for _, e := range d.engines() {
		e.kick()
	}
	for _, c := range d.cameras {
		c.kick()
	}
	for _, c := range d.designs {
		c.kick()
	}
	d.timers.kick()
}

// engines lists the channels in the order of their interrupt bits: all H2C, then all C2H.
func (d *Device) engines() []*engine {
	return append(append(make([]*engine, 0, 2*MaxChannels), d.h2c...), d.c2h...)
}

func (d *Device) readUser(off uint32) uint32 {
	n := int(off / fpga.CameraBlock)
	if n >= len(d.blocks) {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.blocks[n].readRegister(off % fpga.CameraBlock)
}

func (d *Device) writeUser(off, v uint32) {
	n := int(off / fpga.CameraBlock)
	if n >= len(d.blocks) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.blocks[n].writeRegister(off%fpga.CameraBlock, v)
	d.updateIRQ()
}

// absent says that nothing answers on the bus.
func (d *Device) absent() bool { return d.gone.Load() || d.down.Load() }

// window is one BAR. Accesses beyond its end and to a device that has gone read all ones; offsets are cut to
// multiples of 4.
type window struct {
	d     *Device
	read  func(off uint32) uint32
	write func(off, v uint32)
}

func (w *window) Read32(off uint32) uint32 {
	if off >= BARSize || w.d.absent() {
		return goneValue
	}
	return w.read(off &^ 3)
}

func (w *window) Write32(off, v uint32) {
	if off >= BARSize || w.d.absent() {
		return
	}
	w.write(off&^3, v)
}
