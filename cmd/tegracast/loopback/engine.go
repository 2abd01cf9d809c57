// SPDX-License-Identifier: Apache-2.0

package loopback

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cmd/tegracast/device"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/edu"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/fpga/xdma"
	"github.com/tegracast/tegracast/tegra"
)

// engine is a DMA engine with memory behind it, as the validation run uses it.
type engine interface {
	// window returns how much of the engine's memory one transfer may use, in bytes.
	window() int
	// has reports whether there is a channel of that direction.
	has(dir fpga.Direction) bool
	// width returns the width of the data path in bytes, or 0 if the engine has no counters.
	width() int
	// prepare returns a transfer between all of mem and the start of the engine's memory.
	prepare(dir fpga.Direction, mem fpga.Memory) (transfer, error)
}

// Card is the memory on the card that a validation run goes through.
type Card struct {
	Address uint64  // of its first byte, in the card's address space
	Window  int     // number of its bytes that are used
	Channel int     // DMA channel in both directions
	Clock   float64 // clock of the engine's data path in MHz
}

// DefaultCard returns a Card for the FPGA model, and for designs with a block RAM at address 0.
func DefaultCard() Card { return Card{Window: model.DefaultRAM, Clock: model.ClockHz / 1e6} }

func (m Card) check() error {
	switch {
	case m.Window < 1 || m.Window > tegra.MaxPinSize:
		return fmt.Errorf("--window %d: must be from 1 to %d bytes", m.Window, tegra.MaxPinSize)
	case m.Address+uint64(m.Window) < m.Address:
		return fmt.Errorf("--address %#x: %d bytes from there on go beyond the last address", m.Address, m.Window)
	case m.Channel < 0 || m.Channel >= model.MaxChannels:
		return fmt.Errorf("--channel %d: must be from 0 to %d", m.Channel, model.MaxChannels-1)
	case !(m.Clock >= 1 && m.Clock <= 1000):
		return fmt.Errorf("--clock %g: must be from 1 to 1000 MHz", m.Clock)
	}
	return nil
}

// openerOf returns the opener for a board's engine.
func openerOf(b *device.Board) opener {
	if b.Edu() {
		return openEdu
	}
	return openXDMA
}

// Settle opens a board's engine. If the function is fenced, Settle stops the engine and lifts the fence.
func Settle(ctx context.Context, b *device.Board) error {
	_, err := openerOf(b)(ctx, b.Hardware, DefaultCard())
	return err
}

// opener opens a device's engine.
type opener func(ctx context.Context, hw capture.Hardware, card Card) (engine, error)

// transfer can be run repeatedly. If Close fails because the engine does not stop, Abandon must be called.
type transfer interface {
	Run(ctx context.Context) (xdma.Result, error)
	Close() error
	Abandon() error
}

// fencedTransfer is a transfer whose Abandon fences the function, because the engine may still access the memory.
type fencedTransfer struct {
	transfer
	fencer tegra.Fencer
}

// Abandon implements transfer.
func (t fencedTransfer) Abandon() error { return errors.Join(t.fencer.Fence(), t.transfer.Abandon()) }

// xdmaEngine is an XDMA core with memory behind it.
type xdmaEngine struct {
	*xdma.Device
	card   Card
	fencer tegra.Fencer
}

func openXDMA(ctx context.Context, hw capture.Hardware, card Card) (engine, error) {
	d, err := hw.OpenXDMA(ctx)
	return xdmaEngine{d, card, hw.Pinner.(tegra.Fencer)}, err
}

func (e xdmaEngine) window() int { return e.card.Window }
func (e xdmaEngine) width() int  { return e.DataPathWidth() }

func (e xdmaEngine) has(dir fpga.Direction) bool {
	return slices.ContainsFunc(e.Channels(), func(c xdma.ChannelInfo) bool {
		return c.Direction == dir && c.Channel == e.card.Channel && !c.Stream
	})
}

func (e xdmaEngine) prepare(dir fpga.Direction, mem fpga.Memory) (transfer, error) {
	t, err := e.NewTransfer(dir, e.card.Channel, mem, e.card.Address)
	return fencedTransfer{t, e.fencer}, err
}

// eduEngine is QEMU's edu device.
type eduEngine struct {
	*edu.Device
	fencer tegra.Fencer
}

// openEdu opens the device. It lifts an existing fence if the engine is idle.
func openEdu(_ context.Context, hw capture.Hardware, card Card) (engine, error) {
	if card != DefaultCard() {
		return nil, terminal.UsageError{Err: errors.New("QEMU's edu has one channel and one buffer: leave out --address, --window, --channel and --clock")}
	}
	fencer := hw.Pinner.(tegra.Fencer) // implemented by every tegra.Device
	generation, fenced := fencer.Fenced()
	d, err := edu.Open(edu.Config{Registers: hw.BARs[0].Registers, Interrupts: hw.Interrupts})
	if err != nil || !fenced {
		return eduEngine{d, fencer}, err
	}
	if err := d.Settle(); err != nil {
		return nil, err
	}
	return eduEngine{d, fencer}, fencer.Resume(generation)
}

func (e eduEngine) has(fpga.Direction) bool { return true }
func (e eduEngine) window() int             { return edu.BufferSize }
func (e eduEngine) width() int              { return 0 }

func (e eduEngine) prepare(dir fpga.Direction, mem fpga.Memory) (transfer, error) {
	return fencedTransfer{&eduTransfer{device: e.Device, dir: dir, mem: mem}, e.fencer}, nil
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
