// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/tegracast/tegracast/fpga"
)

// ErrRan means that Run was called more than once.
var ErrRan = errors.New("model: the device has been run already, make a new one")

// goneValue is the value read from any register of an absent device.
const goneValue = 0xffffffff

// Device is the FPGA. Its registers work from New on; engines and cameras work while Run is running. After Run has
// returned, the device has gone and every register reads as all ones.
type Device struct {
	cfg   Config
	clock Clock

	ran  atomic.Bool
	gone atomic.Bool // Run has returned
	down atomic.Bool // the link is lost (F4)

	running sync.WaitGroup // goroutines that Run waits for

	// mu guards all registers and the queues between cameras, FIFOs, sinks and engines. It is never held during
	// accesses to the bus, while a frame is built, or while waiting for the clock.
	mu       sync.Mutex
	h2c      []*engine
	c2h      []*engine
	common   common
	irq      irqBlock
	msix     msix
	cameras  []*camera
	designs  []*designCamera
	blocks   []cameraBlock // those of cameras that are not bare, then those of designs
	counter  counter
	clockPPM float64 // deviation of the counter's own clock, in parts per million
	timeSet  timeSet
	resets   uint64 // number of resets; a goroutine discards its work if this has changed since it last held mu
	timers   timers
	faults   faultState

	ram blockRAM
}

// A cameraBlock is the register block of a camera. Its methods are called with Device.mu held.
type cameraBlock interface {
	readRegister(off uint32) uint32
	writeRegister(off, v uint32)
	// raises reports whether the block asserts its user interrupt.
	raises() bool
}

// common is the SGDMA common block (0x6000): bits 3:0 H2C, 19:16 C2H.
type common struct{ halt, creditMode uint32 }

// New returns a device in its reset state.
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

// connectStreams sets the source of every C2H stream channel, and the sink of each H2C stream channel that has one.
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

// BARs returns the user BAR 0 (camera blocks), the DMA BAR 1 (XDMA registers) and the bypass BAR 2 (block RAM).
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

// Interrupts returns the device's interrupts; the vectors are numbered as in the vector registers of the IRQ block.
func (d *Device) Interrupts() fpga.Interrupts { return &d.msix }

// Run runs the device until ctx ends, and then returns nil. The bus is not accessed after it has returned. A device
// runs only once: a second call returns ErrRan.
func (d *Device) Run(ctx context.Context) error {
	if d.ran.Swap(true) {
		return ErrRan
	}
	stop := context.AfterFunc(ctx, d.kickAll)
	defer stop()
	for _, e := range d.engines() {
		d.running.Go(func() { e.moveData(ctx) })
	}
	for _, c := range d.cameras {
		d.running.Go(func() { c.takeFrames(ctx) })
	}
	for _, c := range d.designs {
		d.running.Go(func() { c.followClock(ctx) })
	}
	d.running.Go(func() { d.runTimers(ctx) })
	d.running.Wait()
	<-ctx.Done()
	d.gone.Store(true)
	return nil
}

// kickAll wakes every goroutine.
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

// engines returns the channels in the order of their interrupt bits: all H2C, then all C2H.
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

// absent reports whether the device does not respond on the bus.
func (d *Device) absent() bool { return d.gone.Load() || d.down.Load() }

// window is one BAR. Reads beyond its end, or of an absent device, return all ones, and such writes have no effect.
// Offsets are rounded down to multiples of 4.
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
