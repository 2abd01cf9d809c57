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

// opener finds a device's engine.
type opener func(ctx context.Context, hw capture.Hardware) (engine, error)

// transfer can be run as often as wanted. Abandon is Close when the engine does not stop.
type transfer interface {
	Run(ctx context.Context) (xdma.Result, error)
	Close() error
	Abandon() error
}

// xdmaEngine is an XDMA core with block RAM.
type xdmaEngine struct{ *xdma.Device }

func openXDMA(ctx context.Context, hw capture.Hardware) (engine, error) {
	device, err := hw.OpenXDMA(ctx)
	return xdmaEngine{device}, err
}

func (e xdmaEngine) window() int { return model.DefaultRAM }
func (e xdmaEngine) width() int  { return e.DataPathWidth() }

func (e xdmaEngine) prepare(dir fpga.Direction, mem fpga.Memory) (transfer, error) {
	return e.NewTransfer(dir, 0, mem, 0)
}

// eduEngine is QEMU's edu device.
type eduEngine struct{ *edu.Device }

// openEdu finds the device. A fence that is there before is lifted when the engine is idle.
func openEdu(_ context.Context, hw capture.Hardware) (engine, error) {
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
