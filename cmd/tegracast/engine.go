package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/edu"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/fpga/xdma"
	"github.com/tegracast/tegracast/tegra"
)

// engine is what the validation run needs of a DMA engine with memory behind it.
type engine interface {
	// window is how much of that memory one transfer may use, in bytes.
	window() int
	// has says whether there is a channel of that direction.
	has(dir fpga.Direction) bool
	// width is that of the data path in bytes; 0: the engine has no counters to compare with.
	width() int
	// prepare makes the transfer between all of mem and the beginning of the engine's memory.
	prepare(dir fpga.Direction, mem fpga.Memory) (transfer, error)
}

// cardMemory is the memory on the card that a validation run goes through.
type cardMemory struct {
	address uint64  // of its first byte, on the card's side
	window  int     // bytes
	channel int     // of the DMA engine, each way
	clock   float64 // of the engine's data path, in MHz
}

// defaultCard fits the FPGA model, and designs with a block RAM at address 0.
var defaultCard = cardMemory{window: model.DefaultRAM, clock: model.ClockHz / 1e6}

func (m cardMemory) check() error {
	switch {
	case m.window < 1 || m.window > tegra.MaxPinSize:
		return fmt.Errorf("--window %d: must be from 1 to %d bytes", m.window, tegra.MaxPinSize)
	case m.address+uint64(m.window) < m.address:
		return fmt.Errorf("--address %#x: %d bytes from there on go beyond the last address", m.address, m.window)
	case m.channel < 0 || m.channel >= model.MaxChannels:
		return fmt.Errorf("--channel %d: must be from 0 to %d", m.channel, model.MaxChannels-1)
	case !(m.clock >= 1 && m.clock <= 1000):
		return fmt.Errorf("--clock %g: must be from 1 to 1000 MHz", m.clock)
	}
	return nil
}

// opener finds a device's engine.
type opener func(ctx context.Context, hw capture.Hardware, card cardMemory) (engine, error)

// transfer can be run as often as wanted. Abandon is Close when the engine does not stop.
type transfer interface {
	Run(ctx context.Context) (xdma.Result, error)
	Close() error
	Abandon() error
}

// xdmaEngine is an XDMA core with memory behind it.
type xdmaEngine struct {
	*xdma.Device
	card cardMemory
}

func openXDMA(ctx context.Context, hw capture.Hardware, card cardMemory) (engine, error) {
	device, err := hw.OpenXDMA(ctx)
	return xdmaEngine{device, card}, err
}

func (e xdmaEngine) window() int { return e.card.window }
func (e xdmaEngine) width() int  { return e.DataPathWidth() }

func (e xdmaEngine) has(dir fpga.Direction) bool {
	return slices.ContainsFunc(e.Channels(), func(c xdma.ChannelInfo) bool {
		return c.Direction == dir && c.Channel == e.card.channel && !c.Stream
	})
}

func (e xdmaEngine) prepare(dir fpga.Direction, mem fpga.Memory) (transfer, error) {
	return e.NewTransfer(dir, e.card.channel, mem, e.card.address)
}

// eduEngine is QEMU's edu device.
type eduEngine struct{ *edu.Device }

// openEdu finds the device. A fence that is there before is lifted when the engine is idle.
func openEdu(_ context.Context, hw capture.Hardware, card cardMemory) (engine, error) {
	if card != defaultCard {
		return nil, usageError{errors.New("QEMU's edu has one channel and one buffer: leave out --address, --window, --channel and --clock")}
	}
	fencer := hw.Pinner.(tegra.Fencer) // as every tegra.Device
	generation, fenced := fencer.Fenced()
	device, err := edu.Open(edu.Config{Registers: hw.BARs[0].Registers, Interrupts: hw.Interrupts})
	if err != nil || !fenced {
		return eduEngine{device}, err
	}
	if err := device.Settle(); err != nil {
		return nil, err
	}
	return eduEngine{device}, fencer.Resume(generation)
}

func (e eduEngine) has(fpga.Direction) bool { return true }
func (e eduEngine) window() int             { return edu.BufferSize }
func (e eduEngine) width() int              { return 0 }

func (e eduEngine) prepare(dir fpga.Direction, mem fpga.Memory) (transfer, error) {
	return &eduTransfer{device: e.Device, dir: dir, mem: mem}, nil
}

type eduTransfer struct {
	device *edu.Device
	dir    fpga.Direction
	mem    fpga.Memory
	stuck  bool // the engine may still use mem
}

// Run implements transfer.
func (t *eduTransfer) Run(ctx context.Context) (xdma.Result, error) {
	begin := time.Now()
	err := t.device.Transfer(ctx, t.dir, t.mem)
	t.stuck = errors.Is(err, edu.ErrBusy)
	return xdma.Result{Bytes: t.mem.Size(), Elapsed: time.Since(begin)}, err
}

// Close implements transfer.
func (t *eduTransfer) Close() error {
	if !t.stuck {
		return nil
	}
	return t.device.Settle()
}

// Abandon implements transfer.
func (t *eduTransfer) Abandon() error { return nil }
