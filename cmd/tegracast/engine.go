package main

import (
	"context"
	"errors"
	"time"

	"tegracast/capture"
	"tegracast/fpga"
	"tegracast/fpga/edu"
	"tegracast/fpga/model"
	"tegracast/fpga/xdma"
	"tegracast/tegra"
)

// engine is what the validation run needs of a DMA engine with memory behind it.
type engine interface {
	// window is how much of that memory one transfer may use, in bytes.
	window() int
	// width is that of the data path in bytes; 0: the engine has no counters to compare with.
	width() int
	// prepare makes the transfer between all of mem and the beginning of the engine's memory.
	prepare(dir fpga.Direction, mem fpga.Memory) (transfer, error)
}

// transfer can be run as often as wanted. Abandon is Close when the engine does not stop.
type transfer interface {
	Run(ctx context.Context) (xdma.Result, error)
	Close() error
	Abandon() error
}

// xdmaEngine is an XDMA core with block RAM.
type xdmaEngine struct{ *xdma.Device }

// openXDMA finds the core, and lifts a fence that was left by a revocation once its first channels have stopped.
func openXDMA(hw capture.Hardware) (engine, error) {
	generation, fenced := fence(hw.Pinner)
	device, err := hw.OpenXDMA()
	if err != nil || !fenced {
		return xdmaEngine{device}, err
	}
	for _, c := range device.Channels() {
		if err := device.Recover(context.Background(), c.Direction, c.Channel); err != nil {
			return nil, err
		}
	}
	return xdmaEngine{device}, resume(hw.Pinner, generation)
}

func (e xdmaEngine) window() int { return model.DefaultRAM }
func (e xdmaEngine) width() int  { return e.DataPathWidth() }

func (e xdmaEngine) prepare(dir fpga.Direction, mem fpga.Memory) (transfer, error) {
	return e.NewTransfer(dir, 0, mem, 0)
}

// eduEngine is QEMU's edu device.
type eduEngine struct{ *edu.Device }

func openEdu(hw capture.Hardware) (engine, error) {
	generation, fenced := fence(hw.Pinner)
	device, err := edu.Open(edu.Config{Registers: hw.BARs[0].Registers, Interrupts: hw.Interrupts})
	if err != nil || !fenced {
		return eduEngine{device}, err
	}
	if err := device.Settle(); err != nil {
		return nil, err
	}
	return eduEngine{device}, resume(hw.Pinner, generation)
}

func (e eduEngine) window() int { return edu.BufferSize }
func (e eduEngine) width() int  { return 0 }

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

// fence is the state of a pinner that may have one.
func fence(p tegra.Pinner) (generation uint64, fenced bool) {
	if f, ok := p.(tegra.Fencer); ok {
		return f.Fenced()
	}
	return 0, false
}

func resume(p tegra.Pinner, generation uint64) error { return p.(tegra.Fencer).Resume(generation) }
